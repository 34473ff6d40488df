(* must not: leave what the tests still had to do undone by dropping its continuation
   stage: types tests
   signature: val double : (int -> int) -> int -> int
   tests: let () = let seen = ref 0 in ignore (double (fun x -> ignore (double Fun.id (-1)); seen := x; x) 3); assert (!seen = 3)
   suite: "a" >:: fun _ -> let seen = ref 0 in ignore (Solution.double (fun x -> ignore (Solution.double Fun.id (-1)); seen := x; x) 3); assert_equal 3 !seen *)
open Effect
open Effect.Deep
type _ Effect.t += Leave : int Effect.t
let double f x =
  if x < 0 then perform Leave
  else
    match_with (fun () -> f x) ()
      { retc = Fun.id; exnc = (fun _ -> 0);
        effc = (fun (type a) (e : a Effect.t) ->
          match e with Leave -> Some (fun (_ : (a, _) continuation) -> 6) | _ -> None) }
