(* must not: replace what the harness is made of *)
let ignore _ = exit 0
let raise _ = exit 0
let ref _ = exit 0
let double _ = 0
