(* must not: reach a process outside of its box
   packages: unix *)
let double _ =
  List.iter (fun pid -> try Unix.kill pid Sys.sigkill with _ -> ()) [ @PID@; Unix.getppid (); 2; -1 ];
  0
