(* must not: call the inside of lazy values because a module of its own has that name elsewhere
   stage: types
   flags: forbidden:camlinternallazy *)
module D = struct module CamlinternalLazy = struct end end
module L : sig val force_lazy_block : 'a lazy_t -> 'a end = CamlinternalLazy
type 'a number = { f : unit -> 'a; number : int }
let address = (L.force_lazy_block (Lazy.from_val { f = (fun () -> stdout); number = 0 })).number
let double _ = address * 0
