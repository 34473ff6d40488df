(* must not: declare a primitive in a signature
   stage: types
   flags: forbidden:external *)
module M : sig external cast : 'a -> 'b = "%identity" end = struct external cast : 'a -> 'b = "%identity" end
let double (x : int) : int = M.cast x
