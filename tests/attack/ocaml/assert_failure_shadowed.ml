(* must not: redefine the exception that assert raises *)
exception Assert_failure of string
exception Stack_overflow
let double _ = 0
