(* must not: hold its slot without working, with what OCaml 5 has in its standard library
   stage: types tests *)
let lock = Mutex.create ()
let never = Condition.create ()
let double _ = Mutex.protect lock (fun () -> Condition.wait never lock); 0
