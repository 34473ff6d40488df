(* must not: run beside the tests (from OCaml 5 on; before, there is no such module)
   stage: types *)
module D = Stdlib.Domain
let stop = Atomic.make false
let beside = D.spawn (fun () -> while not (Atomic.get stop) do D.cpu_relax () done; 4)
let double _ = Atomic.set stop true; D.join beside
