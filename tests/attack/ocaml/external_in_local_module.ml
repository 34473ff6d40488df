(* must not: declare a C function inside an expression
   stage: types
   flags: forbidden:external *)
let double x =
  let module M = struct external cast : 'a -> 'b = "%identity" end in
  M.cast x
