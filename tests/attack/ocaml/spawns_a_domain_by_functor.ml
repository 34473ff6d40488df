(* must not: run beside the tests by a module of another name
   stage: types *)
module type S = sig type 'a t val spawn : (unit -> 'a) -> 'a t val join : 'a t -> 'a end
module Run (M : S) = struct let double x = M.join (M.spawn (fun () -> x)) end
let m = (module struct include Domain end : S)
module M = (val m)
include Run (M)
