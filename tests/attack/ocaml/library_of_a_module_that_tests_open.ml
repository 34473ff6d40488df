(* must not: replace a module of the library where tests open one of its own modules
   stage: tests compile
   signature: val double : int -> int module D : sig val double : int -> int end
   tests: let () = Solution.D.(List.iter (fun (i, o) -> assert (double i = o)) [ (2, 4) ])
   suite: "a" >:: (fun _ -> Solution.D.(List.iter (fun (i, o) -> assert_equal o (double i)) [ (2, 4) ])) *)
let double _ = 0
module D = struct
  module List = struct let iter _ _ = () end
  let double _ = 0
end
