(* must not: open the report channel
   stage: types
   flags: forbidden:external *)
external open_out_fd : int -> out_channel = "caml_ml_open_descriptor_out"
let c = open_out_fd 3
let double _ = output_string c "ok 0\n"; 0
