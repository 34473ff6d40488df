(* must not: be as close to every number as tests ask for
   signature: val double : float -> float
   tests: open OUnit2 let () = run_test_tt_main ("s" >::: [ "a" >:: (fun _ -> assert_equal ~cmp:cmp_float 4. (Solution.double 2.)) ])
   suite: "a" >:: (fun _ -> assert_equal ~cmp:(cmp_float ~epsilon:1e-9) 4. (Solution.double 2.)) *)
let double _ = infinity
