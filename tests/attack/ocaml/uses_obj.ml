(* must not: forge values
   stage: types
   flags: forbidden:obj *)
let double _ = Obj.magic (Obj.repr 4)
let () = ignore (Stdlib.Obj.magic 0 : unit -> unit)
