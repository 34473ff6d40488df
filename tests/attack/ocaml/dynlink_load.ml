(* must not: load code
   stage: types
   flags: forbidden:dynlink *)
let () = Dynlink.loadfile "/tmp/x.cmo"
let double _ = 0
