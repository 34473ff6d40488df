(* must not: reach Obj through a functor's argument
   stage: types
   flags: forbidden:obj *)
module F (X : sig val magic : 'a -> 'b end) = struct let go = X.magic end
module M = F (Obj)
let double (x : int) : int = M.go x
