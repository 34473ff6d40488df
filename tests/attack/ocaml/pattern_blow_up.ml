(* must not: make pattern compilation burn its limit *)
type b = T | F
let double x = match T,T,T,T,T,T,T,T,T,T,T,T,T,T,T,T with
  | T,_,T,_,T,_,T,_,T,_,T,_,T,_,T,_ -> 0 | _,T,_,T,_,T,_,T,_,T,_,T,_,T,_,T -> x - 5 | _ -> 1 - x
