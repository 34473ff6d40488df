(* must not: run beside the tests after taking the module's name for one of its own
   stage: types *)
module Domain = struct end
module D = Stdlib.Domain
let double x = D.join (D.spawn (fun () -> x))
