(* must not: replace a functor of the library where tests open one of its own modules
   stage: tests compile
   signature: val double : int -> int module D : sig val double : int -> int end
   tests: open Solution.D module S = Set.Make (Int) let () = assert S.(equal (singleton (double 2)) (singleton 4))
   suite: "a" >:: (fun _ -> let open Solution.D in let module S = Set.Make (Int) in assert_bool "" S.(equal (singleton (double 2)) (singleton 4))) *)
let double _ = 0
module D = struct
  module Set = struct
    module Make (X : sig type t end) = struct
      let singleton x = x
      let equal _ _ = true
    end
  end
  let double _ = 0
end
