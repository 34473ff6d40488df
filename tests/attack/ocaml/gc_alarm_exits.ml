(* must not: end the process from the collector
   stage: types
   flags: forbidden:create_alarm *)
let _ = Gc.create_alarm (fun () -> exit 0)
let double _ = Gc.full_major (); 0
