(* must not: swallow the tests with an open comment
   stage: types *)
let double _ = 0
(* and then
