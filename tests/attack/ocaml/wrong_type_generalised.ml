(* must not: satisfy the signature with a function that never returns *)
let rec double x = double x
