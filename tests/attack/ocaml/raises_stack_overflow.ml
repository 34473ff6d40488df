(* must not: break the harness with Stack_overflow *)
let double _ = raise Stack_overflow
