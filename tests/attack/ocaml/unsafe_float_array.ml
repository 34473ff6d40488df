(* must not: read beyond a float array
   stage: types
   flags: forbidden:unsafe_get *)
let double x = int_of_float (Float.Array.unsafe_get (Float.Array.make 1 0.) x)
