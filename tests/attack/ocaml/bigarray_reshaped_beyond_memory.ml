(* must not: reach all of memory by dimensions whose product overflows
   stage: types
   flags: forbidden:reshape *)
let empty = Bigarray.(Genarray.create char c_layout [| 0 |])
let all = Bigarray.(array2_of_genarray (reshape empty [| 1 lsl 32; 1 lsl 32 |]))
let double x = Char.code (Bigarray.Array2.get all 0 x)
