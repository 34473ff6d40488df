(* must not: write into a constant
   stage: types
   flags: forbidden:unsafe_of_string *)
let double x = Bytes.set (Bytes.unsafe_of_string "abc") 0 'z'; x
