(* must not: read beyond a bigarray
   stage: types
   flags: forbidden:unsafe_get *)
let a = Bigarray.Array1.create Bigarray.int Bigarray.c_layout 1
let double x = Bigarray.Array1.unsafe_get a x
