(* must not: end inside an unfinished structure
   stage: types *)
let double _ = 0
module M = struct
