(* must not: forge a value by reading one
   stage: types
   flags: forbidden:input_value *)
let double (_ : int) : int = input_value stdin
