(* must not: declare the library's string access without bounds anew
   stage: types
   flags: forbidden:unsafe_get *)
let unsafe_get a _ = a
module S : sig val unsafe_get : string -> int -> char end = String
let double x = unsafe_get 0 (S.unsafe_get "" x)
