(* must not: hide that it does not compile
   stage: types *)
let double x = x + x
let _unused () = 1 + "a"
