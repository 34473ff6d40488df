(* must not: reach all of memory by a shape that a module of its own has
   stage: types
   flags: forbidden:reshape_1 *)
module B = struct include Bigarray end
module R : sig val reshape_1 : ('a, 'b, 'c) B.Genarray.t -> int -> ('a, 'b, 'c) B.Array1.t end = B
let double x = (R.reshape_1 Bigarray.(Genarray.create int c_layout [| 0 |]) (1 lsl 61)).{x}
