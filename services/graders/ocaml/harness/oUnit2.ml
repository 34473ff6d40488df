(* The OUnit2 that suites of tests see: the same functions with the same meaning, run one after another in this process
   and reported case by case. No command line, no log files, no parallel runners: there is nobody to read them. *)

type test_ctxt = { tear_downs : (unit -> unit) list ref }
type test_fun = test_ctxt -> unit
type test_length = Immediate | Short | Long | Huge | Custom_length of float
type log_severity = [ `Error | `Info | `Warning ]

type test = TestCase of test_fun | TestList of test list | TestLabel of string * test

exception Failure_of_test of string

let test_case ?length:_ f = TestCase f
let test_list tests = TestList tests
let ( >: ) label test = TestLabel (label, test)
let ( >:: ) label f = TestLabel (label, TestCase f)
let ( >::: ) label tests = TestLabel (label, TestList tests)

let assert_failure message = Gradus_harness.fail (); raise (Failure_of_test message)
let assert_bool message condition = if not (Gradus_harness.judge condition) then assert_failure message
let ( @? ) = assert_bool
let assert_string text = assert_bool text (text = "")

let assert_equal ?ctxt:_ ?(cmp = ( = )) ?printer ?pp_diff:_ ?msg expected actual =
  if not (Gradus_harness.judge (Gradus_harness.told expected actual || cmp expected actual)) then
    let shown = match printer with Some p -> Printf.sprintf "expected: %s but got: %s" (p expected) (p actual) | None -> "not equal" in
    assert_failure (match msg with Some m -> m ^ "\n" ^ shown | None -> shown)

let assert_raises ?msg expected f =
  Gradus_harness.try_ ();
  let wrong what = assert_failure (match msg with Some m -> m ^ "\n" ^ what | None -> what) in
  match f () with
  | _ -> wrong "an exception was expected, but none was raised."
  | exception e -> if not (Gradus_harness.same_exception expected e) then wrong ("not the expected exception: " ^ Printexc.to_string e)

let skip_if condition _message = if condition then raise Gradus_harness.Skipped
let todo _message = raise Gradus_harness.Skipped

let cmp_float ?(epsilon = 0.00001) a b = Gradus_value.in_proportion ~epsilon a b

let bracket set_up tear_down ctxt =
  let fixture = set_up ctxt in
  ctxt.tear_downs := (fun () -> tear_down fixture ctxt) :: !(ctxt.tear_downs);
  fixture

let bracket_tmpfile ?(prefix = "ounit-") ?(suffix = ".txt") ?mode ctxt =
  let create _ = Filename.open_temp_file ?mode prefix suffix in
  let remove (name, channel) _ = close_out_noerr channel; if Sys.file_exists name then Sys.remove name in
  bracket create remove ctxt

let logf _ctxt (_ : log_severity) format = Printf.ksprintf ignore format
let non_fatal ctxt f = f ctxt

let rec cases = function
  | TestCase f -> [ f ]
  | TestList tests -> List.concat_map cases tests
  | TestLabel (_, test) -> cases test

let test_case_count test = List.length (cases test)

let run_case f =
  let ctxt = { tear_downs = ref [] } in
  let tear_down () = List.iter (fun undo -> undo ()) !(ctxt.tear_downs) in
  match f ctxt with
  | () -> tear_down ()
  | exception e -> tear_down (); raise e

let next = ref 0

let run_counted f =
  let id = !next in
  incr next;
  Gradus_harness.check_any id (fun () -> run_case f)

let run_test_tt_main ?exit:_ suite =
  let all = cases suite in
  Gradus_harness.plan (List.length all);
  List.iter run_counted all
