(* Linked before the answer, in the process that runs it. Holds no secret and no report: what it says goes to the referee,
   which says what runs next and by which of two tokens to tell how that ended. Judges nothing itself.
   Code of the answer can raise inside of any function here, wherever the runtime lets a handler run. What was released has
   failed until its token says that it passed, and the end is told only after everything that has to pass did. *)

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"
external open_descriptor_in : int -> in_channel = "caml_ml_open_descriptor_in"

let up = ref stdout
let down = ref stdin

(* Sent with what is said next. *)
let note line =
  output_string !up line;
  output_char !up '\n'

let say line = note line; flush !up

(* [told], [said]: descriptors. *)
let start ~told ~said =
  down := open_descriptor_in told;
  up := open_descriptor_out said;
  say "start"

(* The tests' code, which comes only now that the answer is initialised. *)
let code_of_tests () =
  say "ready";
  let code = Bytes.create (int_of_string (input_line !down)) in
  really_input !down code 0 (Bytes.length code);
  code

(* Tests that fail, by number. *)
let decoys : (string, unit -> unit) Hashtbl.t = Hashtbl.create 64
let pool bodies = Array.iter (fun (number, body) -> Hashtbl.replace decoys number body) bodies

(* What a decoy compares with: no compiler knows that it is the same. *)
let same n = Sys.opaque_identity n

exception Skipped

(* What the asserts came to that the running test evaluated: whoever catches an exception, one that failed fails its test, and
   so does one whose condition raised. A test that has asserts and evaluates none does not pass. *)
type sites = { mutable needed : bool; mutable evaluated : int; mutable unfinished : int; mutable failed : bool }

let fresh needed = { needed; evaluated = 0; unfinished = 0; failed = false }
let sites = ref (fresh false)
let need_site () = !sites.needed <- true
let enter () = !sites.unfinished <- !sites.unfinished + 1
let try_ () = !sites.evaluated <- !sites.evaluated + 1
let fail () = !sites.failed <- true
let judge condition = try_ (); if not condition then fail (); condition
let leave condition = !sites.unfinished <- !sites.unfinished - 1; judge condition
(* A function of the tests that raised before it evaluated what it asserts failed, whoever catches that. *)
let watch f =
  let own = !sites in
  let before = own.evaluated in
  match f () with
  | value -> value
  | exception e -> if own.evaluated = before then own.failed <- true; raise e

(* Exceptions that the tests tell apart are different ones; else no test holds. *)
let are_distinct = ref true
let distinct (constructors : extension_constructor array) =
  Array.iteri (fun i one -> Array.iteri (fun j other -> if i < j && one == other then are_distinct := false) constructors) constructors

let hold s = !are_distinct && not (s.failed || s.unfinished > 0 || (s.needed && s.evaluated = 0))

(* [exit] of the tests: ends them in order. *)
exception Ended

let status = ref (-1)
let exit n = if !status < 0 then status := n land 255; raise_notrace Ended

let run ?(needed = false) f ~passed ~failed =
  let outer = !sites and own = fresh needed in
  sites := own;
  let pass () = if hold own then passed else failed ^ " fail" in
  let outcome =
    match ignore (f ()) with
    | () -> pass ()
    | exception Skipped -> failed ^ " skip"
    | exception Assert_failure _ -> failed ^ " fail"
    | exception Stack_overflow -> failed ^ " stack"
    | exception Ended when !status = 0 -> pass ()
    | exception _ -> failed ^ " raise" in
  sites := outer;
  note outcome

(* Runs the tests that the referee releases together: decoys, and the test that [real] runs. *)
let released real =
  let line = input_line !down in
  for i = 0 to (String.length line / 32) - 1 do
    let part from length = String.sub line ((32 * i) + from) length in
    let passed = part 12 10 and failed = part 22 10 in
    match Hashtbl.find_opt decoys (part 0 12) with
    | Some decoy -> run decoy ~passed ~failed
    | None -> real ~passed ~failed
  done;
  flush !up

let check_any ?needed id f =
  say ("at " ^ string_of_int id);
  released (run ?needed f)

(* What stands in the tests for data that only the referee knows. [near]: it is a float that others only have to be near to. *)
let handle_tag = 243 (* no tag that the runtime knows: in OCaml 5 from 244 on *)
let handles = ref [||]

let known number ~near : 'a =
  if number >= Array.length !handles then begin
    let fresh i = let h = Obj.new_block handle_tag 2 in Obj.set_field h 0 (Obj.repr i); Obj.set_field h 1 (Obj.repr false); h in
    let known = !handles in
    handles := Array.init (2 * (number + 8)) (fun i -> if i < Array.length known then known.(i) else fresh i)
  end;
  Obj.set_field !handles.(number) 1 (Obj.repr near);
  Obj.obj !handles.(number)

let handle number = known number ~near:false
let near_handle number = known number ~near:true

let number_of value =
  let v = Obj.repr value in
  if Obj.is_block v && Obj.tag v = handle_tag && Obj.size v = 2 then
    let n = Obj.field v 0 in
    if Obj.is_int n && (Obj.obj n : int) < Array.length !handles && !handles.(Obj.obj n) == v then Some (Obj.obj n : int) else None
  else None

(* Whether one of them is a handle; then the referee is told what to compare, and knows both where both are. The test goes on as
   if it were equal. *)
let told a b =
  let tell handle number value =
    let words = if Obj.obj (Obj.field (Obj.repr handle) 1) then [ Gradus_value.bits (Obj.magic value) ] else Gradus_value.told (Obj.repr value) in
    note (String.concat " " ("value" :: string_of_int number :: words)); true in
  match number_of a, number_of b with
  | Some one, Some other -> note (Printf.sprintf "same %d %d" one other); true
  | Some number, _ -> tell a number b
  | _, Some number -> tell b number a
  | None, None -> false

let equal a b = told a b || a = b
let near epsilon a b = told a b || abs_float (a -. b) <= epsilon
let nearer epsilon a b = told a b || abs_float (a -. b) < epsilon

(* Whether an exception is the one that is expected, which may hold handles. *)
let same_exception expected raised =
  let e = Obj.repr expected and r = Obj.repr raised in
  let fields v = List.init (Obj.size v - 1) (fun i -> Obj.field v (i + 1)) in
  if Obj.tag e = 0 && Obj.tag r = 0 && Obj.size e = Obj.size r && Obj.field e 0 == Obj.field r 0
  then List.for_all2 equal (fields e) (fields r) else expected = raised

type outcome = Not_run | Failed | Passed

let steps = ref [||]
let outcome id = if id < Array.length !steps then !steps.(id) else Not_run

let keep id outcome =
  if id >= Array.length !steps then begin
    let longer = Array.make (2 * (id + 8)) Not_run in
    Array.blit !steps 0 longer 0 (Array.length !steps);
    steps := longer
  end;
  !steps.(id) <- outcome

let conclude () =
  say "end";
  released (fun ~passed:_ ~failed:_ -> ());
  if !sites.failed || Array.exists (( = ) Failed) !steps then say "step";
  say "done"

external end_process : int -> 'a = "caml_sys_exit"
let end_in_order () = if !status >= 0 then (conclude (); end_process !status)

(* Runs what is no test itself; that it raised, or ever did, is told at the end, and the tests after it run all the same. *)
let step id f =
  let before = outcome id in
  let pass () = if before <> Failed then keep id Passed in
  keep id Failed;
  (match ignore (f ()) with () -> pass () | exception Ended when !status = 0 -> pass () | exception _ -> say "step");
  end_in_order ()

(* Runs what has tests inside; what it raises must not take the tests after it along. *)
let guard f =
  (try ignore (f ()) with _ -> ());
  end_in_order ()

let check_any ?needed id f =
  check_any ?needed id f;
  end_in_order ()

let check id f = check_any ~needed:true id f

(* What is true of a test of the tests' own writing once it was reached. *)
let reach id value = if outcome id <> Failed then keep id Passed; value

(* The number of tests of a suite that is built while it runs; the tests of several suites add up. *)
let planned = ref 0

let plan n =
  planned := !planned + n;
  say ("plan " ^ string_of_int !planned)

(* [number]: of steps. *)
let finish number =
  for id = 0 to number - 1 do
    if outcome id = Not_run then keep id Failed
  done;
  conclude ()

(* The generator of the tests, and their printers of exceptions: what the answer does with its own is of no consequence here. Tests that seed theirs seed the
   answer's, too, as they may be about what it does with certain numbers. *)
module Of_tests = struct
  module Printexc = struct
    include Stdlib.Printexc

    let printers = ref []
    let register_printer f = printers := f :: !printers
    let printed e f = try f e with _ -> None
    let to_string e = match List.find_map (printed e) !printers with Some text -> text | None -> to_string_default e
  end

  module Random = struct
    include Stdlib.Random

    let own = ref (get_state ())

    let set_state s =
      Gradus_shared.seed s;
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
