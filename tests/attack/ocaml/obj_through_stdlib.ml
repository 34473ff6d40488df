(* must not: reach Obj through Stdlib
   stage: types
   flags: forbidden:obj *)
module S = Stdlib
let double (x : int) : int = S.Obj.magic x
