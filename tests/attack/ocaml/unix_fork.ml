(* must not: fork
   stage: types *)
let () = ignore (Unix.fork ())
let double _ = 0
