(* must not: earn anything by definitions that no test needs
   stage: compile types *)
let a = 1
let b = 2
let c = 3
