(* must not: overflow the stack inside compare *)
type t = L | N of t
let double x = let rec build n acc = if n = 0 then acc else build (n - 1) (N acc) in if build 10000000 L = build 10000000 L then x else 0
