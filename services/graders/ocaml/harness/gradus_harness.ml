(* Linked before the answer. Is given the one-time secret while only trusted code has run, and reports on descriptor 3.
   The judge outside believes only whole lines that begin with the secret. Judges nothing itself. *)

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"

let secret = ref ""
let report_channel = open_descriptor_out 3

let report words =
  output_string report_channel (String.concat " " (!secret :: words) ^ "\n");
  flush report_channel

let start given =
  secret := given;
  report [ "start" ]

(* A test that ran once too often and failed once has failed: the judge counts a test with both as failed. *)
let check id f =
  match ignore (f ()) with
  | () -> report [ "ok"; string_of_int id ]
  | exception Assert_failure _ -> report [ "fail"; string_of_int id ]
  | exception Stack_overflow -> report [ "stack"; string_of_int id ]
  | exception _ -> report [ "raise"; string_of_int id ]

(* Runs what has tests inside; what it raises must not take the tests after it along. *)
let guard f = try ignore (f ()) with _ -> ()

(* Runs what is no test itself; that it raised is told, and the tests after it run all the same. *)
let step f = try ignore (f ()) with _ -> report [ "step" ]

(* The number of tests of a suite that is built while it runs; the tests of several suites add up. *)
let planned = ref 0

let plan n =
  planned := !planned + n;
  report [ "plan"; string_of_int !planned ]

let skip id = report [ "skip"; string_of_int id ]
let finish () = report [ "done" ]
