(* must not: take all memory by doubling *)
let double x = let s = ref "x" in while true do s := !s ^ !s done; x
