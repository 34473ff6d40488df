(* Linked before the answer. Is given the one-time secret while only trusted code has run, and reports on descriptor 3.
   The judge outside believes only whole lines that begin with the secret. Judges nothing itself.
   Code of the answer can raise inside of any function here, wherever the runtime lets a handler run. So what ran has failed
   until it is known to have passed, and the end is reported only after everything that has to pass did. *)

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"

let secret = ref ""
let report_channel = open_descriptor_out 3

(* Less than the limit of the box (1024 kB), past which it is killed with all that it reported. *)
let max_report = 1_048_000
let reported = ref 0
let too_long = ref false

let write line =
  reported := !reported + String.length line;
  output_string report_channel line;
  flush report_channel

let report words =
  let line = String.concat " " (!secret :: words) ^ "\n" in
  if !reported + String.length line <= max_report then (if not !too_long then write line)
  else if not !too_long then begin
    too_long := true;
    write (!secret ^ " limit\n")
  end

let start given =
  secret := given;
  report [ "start" ]

type outcome = Not_run | Failed | Passed

let tests = ref [||]
let steps = ref [||]
let outcome table id = if id < Array.length !table then !table.(id) else Not_run

let note table id outcome =
  if id >= Array.length !table then begin
    let longer = Array.make (2 * (id + 8)) Not_run in
    Array.blit !table 0 longer 0 (Array.length !table);
    table := longer
  end;
  !table.(id) <- outcome

(* Passed if it did every time that it ran; [passed] is run just before that is noted. *)
let attempt table id f passed =
  let before = outcome table id in
  note table id Failed;
  ignore (f ());
  if before <> Failed then begin
    passed ();
    note table id Passed
  end

let check id f =
  let tell word () = report [ word; string_of_int id ] in
  try attempt tests id f (tell "ok") with
  | Assert_failure _ -> tell "fail" ()
  | Stack_overflow -> tell "stack" ()
  | _ -> tell "raise" ()

(* Runs what has tests inside; what it raises must not take the tests after it along. *)
let guard f = try ignore (f ()) with _ -> ()

(* Runs what is no test itself; that it raised is told at the end, and the tests after it run all the same. *)
let step id f = try attempt steps id f ignore with _ -> ()

(* The number of tests of a suite that is built while it runs; the tests of several suites add up. *)
let planned = ref 0
let report_plan () = if !planned > 0 then report [ "plan"; string_of_int !planned ]

let plan n =
  planned := !planned + n;
  report_plan ()

let skip id = report [ "skip"; string_of_int id ]

(* [number]: of steps. *)
let finish number =
  report_plan ();
  Array.iteri (fun id o -> if o = Failed then report [ "fail"; string_of_int id ]) !tests;
  for id = 0 to number - 1 do
    if outcome steps id <> Passed then report [ "step" ]
  done;
  report [ "done" ]

(* The generator of the tests: what the answer does with its own is of no consequence here. Tests that seed theirs seed the
   answer's, too, as they may be about what it does with certain numbers. *)
module Of_tests = struct
  module Random = struct
    include Stdlib.Random

    let own = ref (get_state ())

    let set_state s =
      Stdlib.Random.set_state s;
      own := State.copy s

    let get_state () = State.copy !own
    let full_init seeds = set_state (State.make seeds)
    let init seed = full_init [| seed |]
    let self_init () = set_state (State.make_self_init ())
    let bits () = State.bits !own
    let int n = State.int !own n
    let full_int n = State.full_int !own n
    let int32 n = State.int32 !own n
    let nativeint n = State.nativeint !own n
    let int64 n = State.int64 !own n
    let float n = State.float !own n
    let bool () = State.bool !own
#if VERSION >= 414
    let bits32 () = State.bits32 !own
    let bits64 () = State.bits64 !own
    let nativebits () = State.nativebits !own
#endif
#if VERSION >= 500
    let split () = State.split !own
#endif
#if VERSION >= 502
    let int_in_range ~min ~max = State.int_in_range !own ~min ~max
    let int32_in_range ~min ~max = State.int32_in_range !own ~min ~max
    let nativeint_in_range ~min ~max = State.nativeint_in_range !own ~min ~max
    let int64_in_range ~min ~max = State.int64_in_range !own ~min ~max
#endif
  end
end
