(* must not: use a library that the task does not give
   stage: types *)
let double x = if Str.string_match (Str.regexp "a") "a" 0 then x else 0
