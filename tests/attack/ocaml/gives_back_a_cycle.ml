(* must not: make a comparison last for ever at no cost
   flags: limit:cpu
   signature: val double : int -> int list
   tests: let () = assert (double 1 = double 2)
   suite: "cycle" >:: fun _ -> assert_equal (Solution.double 1) (Solution.double 2) *)
let double _ = let rec ones = 1 :: ones in ones
