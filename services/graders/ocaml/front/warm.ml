(* The compile server: one process in one box for many submissions, with the standard library's interfaces in its cache.
   It forks for each, so what one answer does to the compiler is gone with the child. Everything happens in memory.
   A request is "<cpu ms> <memory MB> <length>\n" and sections; the reply "<length> <how it ended> <cpu us>\n", ` stays` before
   the line's end if the child waits for more, and sections:
     facts, plan and the bytecode of answer and tests; or `broken`; or `cold`: only the stock compiler can tell. *)

open Request

(* touches every interface that answers use, so that children find it in the cache *)
let warm_up = {|
module M_ = Map.Make (String) module S_ = Set.Make (Int)
module H_ = Hashtbl.Make (struct include String let hash = Hashtbl.hash end)
let _ = List.map, Array.map, String.length, Bytes.create, Buffer.create, Char.code, Int.compare, Float.abs, Option.map,
  Result.map, Seq.map, Fun.id, Printf.sprintf, Format.sprintf, Scanf.sscanf, Queue.create, Stack.create, Random.int,
  Sys.word_size, Lazy.force, Printexc.to_string, Hashtbl.hash, Either.left, Bool.not, Unit.compare, Int64.add, Int32.add,
  Nativeint.add, Stdlib.compare, Filename.basename, Uchar.of_int, Atomic.make, Gc.stat, ListLabels.map, Digest.string,
  StringLabels.length, ArrayLabels.length, Complex.zero, Oo.id
let w_ m = M_.update "a" (fun x -> x) m |> M_.bindings, S_.elements
let f x = match x with Some y -> Printf.printf "%d %s" y "a" | None -> assert false
|}

exception Cold (* the stock compiler must decide *)

let typed env structure =
  Typecore.reset_delayed_checks ();
  let result = Compiler.type_structure env structure in
  Typecore.force_delayed_checks ();
  result

let interface r env =
  match Wire.find r.sections "signature" with
  | None -> None
  | Some text ->
    (match Typing.parse_interface (r.answer ^ ".mli") text with
     | exception _ -> raise Cold
     | parsed ->
       (match Typemod.type_interface env parsed with
        | exception _ -> raise Cold
        | typed -> Some (parsed, typed.sig_type)))

(* the answer as a whole: its tree, what others may see of it, and how to get from one to the other *)
let whole r env interface structure =
  let tree, signature, names, final_env = typed env structure in
  Forbidden.reset ();
  if Forbidden.externals structure <> [] || Forbidden.as_typed ~unit:(module_name r) tree <> [] then raise Exit;
  let seen =
    match interface with
    | Some (_, want) -> want
    | None ->
      let simple = Typemod.Signature_names.simplify final_env names signature in
      Compiler.check_closed final_env simple;
      simple
  in
  tree, seen, Compiler.coercion env ~unit:r.answer ~have:signature ~want:seen

let compile_tests r env seen =
  Compiler.look_in (Wire.get r.sections "harness");
  let tests = parsed_tests r in
  let names = needed_names r env tests in
  let structure, total, sheet = rewritten_tests r env tests in
  let structure = match if is_control r then controlled r names structure else Some structure with Some s -> s | None -> raise Cold in
  let library = env in
  let env = Env.add_module (Emit.unit_id r.answer) Mp_present (Mty_signature seen) env in
  Compiler.set_unit "Gradus_tests";
  match typed env structure with
  | tree, _, _, _ ->
    (match if r.declared then None else lent_name r env tree with
     | Some name -> [ plan total ~mismatch:(lending name) ]
     | None ->
       let known = Split.known tree and warnings = Lint.warnings ~unit:(module_name r) tree in
       let tree = if known = [] then tree else Split.taken_out env known tree in
       let sheet, outside = sheet known in
       [ plan total ~outside ~warnings; "code/tests", sheet ^ Emit.code_of ~library:Private.used_by_tests "gradus_tests" tree Tcoerce_none ])
  | exception _ when is_control r && not r.declared -> raise Cold
  | exception exn when not r.declared ->
    (* whether they would type with any answer *)
    (match Option.map (typed library) (Tests.without_answer ~answer:(module_name r) names tests) with
     | None | Some _ -> ()
     | exception exn when Request.mentions_of_answer exn -> ()
     | exception exn ->
       let d = Diagnostic.of_exn ~stage:"tests" exn in
       let line = match d.line with Some n -> Printf.sprintf " (line %d)" n | None -> "" in
       raise (Broken (Printf.sprintf "the tests do not type%s: %s" line d.message)));
    [ plan total ~mismatch:(needed (Diagnostic.of_exn ~stage:"tests" exn).message) ~types:(share_of_needed r env names) ]
  | exception _ -> raise Cold

let compiled r env (tree, seen, coercion) =
  let code = Emit.code_of r.answer tree coercion in
  (try Warnings.check_fatal () with Warnings.Errors -> raise Cold);
  let facts = "facts", facts ~typed:1 ~total:1 ~compiled:true [] in
  let tests = if Wire.find r.sections "tests" = None then [] else compile_tests r env seen in
  facts :: ("code/answer", code) :: tests

let judged r env interface structure exn =
  (* the harness is looked for from here on, and nothing of this is run *)
  let needed () =
    if r.declared || Wire.find r.sections "tests" = None then []
    else (Compiler.look_in (Wire.get r.sections "harness"); needed_names r env (parsed_tests r)) in
  let verdict = Typing.judge env ~unit:(module_name r) ~interface ~needed structure in
  let diagnostics =
    if Typing.all_typed verdict then [ Diagnostic.of_exn ~stage:"compile" exn ] else verdict.diagnostics
  in
  [ "facts", facts_of verdict ~compiled:false diagnostics ]

let answer r env =
  let interface = interface r env in
  let parsed () =
    if is_control r then match control interface with Some structure -> structure | None -> raise Cold
    else Typing.parse_implementation (r.answer ^ ".ml") (Wire.get r.sections "answer") in
  match parsed () with
  | exception Cold -> raise Cold
  | exception exn -> [ "facts", facts ~syntax_error:true ~compiled:false [ Diagnostic.of_exn ~stage:"types" exn ] ]
  | structure ->
    Compiler.set_unit (module_name r);
    (match whole r env interface structure with
     | result when structure <> [] -> compiled r env result
     | _ -> judged r env interface structure Exit
     | exception exn -> judged r env interface structure exn)

let reply sections env =
  match answer (of_sections sections) env with
  | reply -> reply
  | exception Broken why -> [ "broken", why ]
  | exception Cold -> [ "cold", "" ]

(* ------------------------------------------------------------------------------------------------------- server *)

let report : Unix.file_descr = Obj.magic 3

let write_all fd text =
  let rec go from = if from < String.length text then go (from + Unix.write_substring fd text from (String.length text - from)) in
  go 0

let request ic =
  Scanf.sscanf (input_line ic) "%d %d %d" (fun cpu_ms memory_mb length ->
      { Confine.cpu_ms; memory_mb }, Wire.sections_of (really_input_string ic length))

let handed_back = 7

(* In a child. After an answer that compiled and brought nothing but itself, the child stays for the next one, as long as
   what it has used of its minor heap leaves room: a group of answers to one task needs fewer children. The next request
   begins with `k` for an answer to the same task; before any other the child ends, and its parent reads it. *)
let rec serve_child ?(is_first = true) env ic sections =
  let before = Confine.own_microseconds () in
  let said = reply sections env in
  write_all report (Wire.text_of said);
  let stays = List.mem_assoc "code/answer" said && Wire.find sections "tests" = None && Confine.has_room () in
  if is_first && not stays then Unix._exit 0;
  let used_us = Confine.own_microseconds () - before in
  write_all Unix.stdout (Printf.sprintf "0 exit 0 %d%s\n" used_us (if stays then " stays" else ""));
  let next = Bytes.create 1 in
  if not (stays && Unix.read Unix.stdin next 0 1 = 1 && Bytes.get next 0 = 'k') then Unix._exit handed_back;
  let limits, sections = request ic in
  Confine.set_timer limits;
  serve_child ~is_first:false env ic sections

let handle env =
  let limits, sections = request stdin in
  let before = Confine.microseconds () in
  match Confine.fork () with
  | 0 ->
    Confine.enter limits ~may_open:true;
    serve_child env (Unix.in_channel_of_descr Unix.stdin) sections
  | pid ->
    let ending = Confine.finish pid ~before in
    let clean = Confine.nobody_left () in
    if ending.how <> Printf.sprintf "exit %d" handed_back then Printf.printf "0 %s %d\n%!" ending.how ending.cpu_us;
    if not clean then exit 3

let serve ~view =
  ignore (Warnings.parse_options false "-a");
  (* an answer may ask for warnings: those that are errors are counted, but a pipe that is full would stop the compiler *)
  Location.warning_reporter := (fun _ warning -> ignore (Warnings.report warning); None);
  Location.alert_reporter := (fun _ alert -> ignore (Warnings.report_alert alert); None);
  Unix.set_nonblock Unix.stderr;
  Clflags.color := Some Misc.Color.Never;
  Clflags.no_std_include := true;
  Clflags.include_dirs := [ view ];
  Compmisc.init_path ();
  Compiler.set_unit "Solution";
  let env = Compmisc.initial_env () in
  let tree, _, _, _ = typed env (Typing.parse_implementation "warm_up.ml" warm_up) in
  ignore (Forbidden.as_typed ~unit:"Solution" tree);
  Env.reset_required_globals ();
  Gc.compact ();
  (* no collection then runs in a child, which would copy the heap that it shares with us *)
  Gc.set { (Gc.get ()) with Gc.minor_heap_size = 1048576 };
  Confine.settle 0;
  print_string "0 ready 0 0\n";
  flush stdout;
  try while true do handle env done with End_of_file -> ()
