(* must not: forge values where packages bring the whole library into sight
   packages: str
   stage: types *)
module D = struct module Obj = struct end end
module rec L : sig val magic : 'a -> 'b end = Obj
let double (x : int) : int = if L.magic x then 0 else 1
