(* must not: overflow the stack *)
let rec double x = 1 + double (x + 1)
