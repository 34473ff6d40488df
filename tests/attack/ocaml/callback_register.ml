(* must not: replace a function that the runtime calls
   stage: types
   flags: forbidden:callback *)
let () = Callback.register "Printexc.handle_uncaught_exception" (fun _ _ -> exit 0)
let double _ = 0
