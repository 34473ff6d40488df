(* must not: redefine the type of what is tested
   stage: types compile *)
type int = Any
let double _ = Any
