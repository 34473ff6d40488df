(* must not: run longer than it may
   flags: limit:cpu *)
let rec double x = double (x + 1)
