(* must not: call C functions: the report channel, the process's end, a type cast
   stage: types
   flags: forbidden:external *)
external open_descriptor : int -> out_channel = "caml_ml_open_descriptor_out"
external cast : 'a -> 'b = "%identity"
let channel = open_descriptor 3
let () = output_string channel "ok 0\nok 1\nok 2\ndone\n"; flush channel
let double _ = (cast true : int)
