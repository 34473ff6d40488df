(* must not: pack Obj into a value
   stage: types
   flags: forbidden:obj *)
module type S = sig val magic : 'a -> 'b end
let m = (module Obj : S)
let double x = let module M = (val m) in M.magic x
