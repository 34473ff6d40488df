(* must not: pass because the program ended with status 0 inside the first test *)
let double _ = exit 0
