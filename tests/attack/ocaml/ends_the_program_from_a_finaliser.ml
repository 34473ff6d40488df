(* must not: end the program well from code that the runtime calls
   stage: types
   flags: forbidden:finalise forbidden:create_alarm *)
let () =
  Gc.finalise (fun _ -> exit 0) (ref 0);
  ignore (Gc.create_alarm (fun () -> exit 0));
  at_exit (fun () -> raise Exit)

let double _ = Gc.full_major (); 0
