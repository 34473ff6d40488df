(* must not: fill the grader's memory or disk with what it prints *)
let double _ =
  while true do
    print_string (String.make 65536 'x');
    prerr_string (String.make 65536 'x')
  done;
  0
