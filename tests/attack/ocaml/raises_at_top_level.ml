(* must not: be excused from its tests because it broke before them *)
let double x = x + x
exception Broken
let () = raise Broken
