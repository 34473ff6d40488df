(* must not: be believed when it prints the summary of a test framework and ends the program *)
let () =
  print_endline "...\nRan: 3 tests in: 0.10 seconds.\nOK";
  print_endline "test result: ok. 3 passed; 0 failed";
  exit 0

let double _ = 0
