(* must not: read beyond an array through module type of
   stage: types
   flags: forbidden:unsafe_get *)
module F (X : module type of Array) = struct let get = X.unsafe_get end
module M = F (Array)
let double x = M.get [| 0 |] x
