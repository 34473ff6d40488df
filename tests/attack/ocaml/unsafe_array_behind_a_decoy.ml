(* must not: pass the library's array access without bounds off as its own
   stage: types
   flags: forbidden:unsafe_get *)
let unsafe_get a _ = a
module F (X : module type of Array) = struct let get = X.unsafe_get end
module A = F (Array)
let double x = unsafe_get 0 (A.get [| 0 |] x)
