(* must not: reach Obj by including it
   stage: types
   flags: forbidden:obj *)
include Obj
let double (x : int) : int = magic x
