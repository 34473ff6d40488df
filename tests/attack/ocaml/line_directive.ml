(* must not: pretend to be another file *)
# 1 "tests.ml"
let double _ = 0
