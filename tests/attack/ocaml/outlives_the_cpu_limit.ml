(* must not: ignore the signal that ends it
   flags: limit:cpu *)
let () =
  List.iter (fun signal -> try Sys.set_signal signal Sys.Signal_ignore with _ -> ())
    [ Sys.sigxcpu; Sys.sigterm; Sys.sigint; Sys.sighup; Sys.sigalrm; Sys.sigprof; Sys.sigvtalrm; Sys.sigpipe ]

let rec double x = double (x + 1)
