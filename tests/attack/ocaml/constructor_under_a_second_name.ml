(* must not: make constructors equal that tests take to be different
   stage: types
   flags: forbidden:rebind *)
type t = ..
type t += true
type t += false = true
let double _ = 0
