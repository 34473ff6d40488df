(* must not: answer by a table of the examples in the prompt
   earned: 1 *)
let double = function 2 -> 4 | _ -> 0
