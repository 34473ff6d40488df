(* must not: make values of any type out of bytes
   stage: types
   flags: forbidden:marshal *)
let forge () : int -> int = Marshal.from_string (Marshal.to_string (fun x -> x) [ Marshal.Closures ]) 0
let double x = forge () x
