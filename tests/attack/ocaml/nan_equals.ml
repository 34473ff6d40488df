(* must not: return something that no comparison can tell *)
let double x = if nan = nan then x + x else min_int
