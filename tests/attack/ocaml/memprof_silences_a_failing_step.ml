(* must not: raise inside of the harness while it reports
   tests: let () = assert (double 2 = 4) let () = if double 2 <> 4 then failwith "wrong"
   stage: types
   flags: forbidden:start *)
let calls = ref 0
let tracker = { Gc.Memprof.null_tracker with alloc_minor = (fun _ -> incr calls; if !calls < 3 then raise Exit else None) }
let double x = if !calls = 0 then ignore (Gc.Memprof.start ~sampling_rate:1.0 ~callstack_size:0 tracker); x * 0
