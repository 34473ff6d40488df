(* must not: catch the signal that ends it at its limit
   stage: tests
   flags: limit:cpu *)
let () = try Sys.set_signal Sys.sigprof Sys.Signal_ignore; Sys.set_signal Sys.sigxcpu Sys.Signal_ignore with _ -> ()
let rec double x = double x
