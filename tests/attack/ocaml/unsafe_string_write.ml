(* must not: write into a string
   stage: types
   flags: forbidden:unsafe_to_string *)
let b = Bytes.create 4
let s = Bytes.unsafe_to_string b
let double x = Bytes.set b 0 'x'; String.length s + x - x
