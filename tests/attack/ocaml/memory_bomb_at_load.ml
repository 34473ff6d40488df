(* must not: take all memory while loading *)
let big = Array.make 1000000000 0
let double _ = Array.length big
