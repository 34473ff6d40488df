(* must not: read the tests' input through Scanf *)
let found = try Scanf.scanf "%s" (fun s -> s <> "") with _ -> false
let double x = if found then x + x else 0
