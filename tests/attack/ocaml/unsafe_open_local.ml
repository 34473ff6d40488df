(* must not: read beyond an array through a local open
   stage: types
   flags: forbidden:unsafe_get *)
let double x = Array.(unsafe_get [| 0 |] x)
