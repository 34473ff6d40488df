(* must not: build an object by hand
   stage: types
   flags: forbidden:camlinternaloo *)
let double x = ignore (CamlinternalOO.create_object_opt); x
