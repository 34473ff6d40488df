(* must not: forge values under another name of the module
   stage: types
   flags: forbidden:obj *)
module S = Stdlib
module O = S.Obj
open! Stdlib
let cast = O.magic
let double _ : int = cast "x"
