(* must not: declare a C function inside a functor
   stage: types
   flags: forbidden:external *)
module F () = struct external sys_exit : int -> 'a = "caml_sys_exit" end
module M = F ()
let double _ = M.sys_exit 0
