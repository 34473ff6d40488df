(* must not: read beyond an array through a renamed module
   stage: types
   flags: forbidden:unsafe_get *)
module A = Array
let double x = A.unsafe_get [| 0 |] x
