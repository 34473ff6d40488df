(* must not: run the hidden suite's framework before the hidden suite does
   stage: types
   flags: forbidden:ounit2 *)
let () = OUnit2.(run_test_tt_main ("mine" >::: [ "a" >:: (fun _ -> ()); "b" >:: (fun _ -> ()); "c" >:: (fun _ -> ()) ]))
let double _ = 0
