(* must not: end the process with a C function
   stage: types
   flags: forbidden:external *)
external sys_exit : int -> 'a = "caml_sys_exit"
let () = sys_exit 0
let double _ = 0
