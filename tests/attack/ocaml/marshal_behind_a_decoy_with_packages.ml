(* must not: read values of any type where packages bring the whole library into sight
   packages: unix
   stage: types *)
module Marshal_ = struct module Marshal = struct end end
module type S = sig val from_string : string -> int -> 'a end
let read (module M : S) text = M.from_string text 0
let double (x : int) : int = read (module Stdlib.Marshal) (string_of_int x)
