open OUnit2
open Add_one

let tests =
  [
    ("one" >:: fun _ -> assert_equal 2 (add 1));
    ("minus one" >:: fun _ -> assert_equal 0 (add (-1)));
  ]

let () = run_test_tt_main ("add one" >::: tests)
