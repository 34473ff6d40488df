(* The compiler's side of the OCaml grader: one request on standard input, the reply on descriptor 3, then exit.
     answer   types and compiles an answer; the tests do not exist in that box
     tests    rewrites, compiles and links the tests against a compiled answer; nothing of the answer runs
   Runs in a box of its own each time and works in /tmp. Judges nothing: the reply is facts. *)

let work = "/tmp"
let max_text = 1 lsl 16

let write_file name bytes =
  let oc = open_out_bin (Filename.concat work name) in
  output_string oc bytes;
  close_out oc

let read_file name =
  let ic = open_in_bin (Filename.concat work name) in
  let bytes = really_input_string ic (in_channel_length ic) in
  close_in ic;
  bytes

let exists name = Sys.file_exists (Filename.concat work name)

(* ------------------------------------------------------------------------------------------------------ request *)

type request = {
  sections : Wire.sections;
  ocamlc : string;
  view : string; (* the part of the standard library that answers may see *)
  includes : string list;
  ppx : string list;
  answer : string; (* module name, first letter in lower case *)
  declared : bool;
}

let request sections =
  { sections; ocamlc = Wire.get sections "ocamlc"; view = Wire.get sections "view"; includes = Wire.lines (Wire.get sections "includes");
    ppx = Wire.lines (Wire.get sections "ppx"); answer = String.uncapitalize_ascii (Wire.get sections "module");
    declared = Wire.find sections "signature" <> None }

(* ------------------------------------------------------------------------------------------------------ ocamlc *)

type run = Fine | Failed of string

let ocamlc r arguments =
  let flags = List.concat_map (fun dir -> [ "-I"; dir ]) ("." :: r.includes) in
  let ppx = List.concat_map (fun command -> [ "-ppx"; command ]) r.ppx in
  let standard = if r.view = "" then [] else [ "-nostdlib"; "-I"; r.view ] in
  let argv = Array.of_list ([ r.ocamlc; "-w"; "-a"; "-color"; "never" ] @ standard @ flags @ ppx @ arguments) in
  let log = Unix.openfile "log" [ O_RDWR; O_CREAT; O_TRUNC ] 0o600 in
  let pid = Unix.create_process r.ocamlc argv Unix.stdin log log in
  let _, status = Unix.waitpid [] pid in
  Unix.close log;
  match status with
  | Unix.WEXITED 0 -> Fine
  | Unix.WEXITED _ -> let text = read_file "log" in Failed (String.sub text 0 (min max_text (String.length text)))
  | Unix.WSIGNALED n | Unix.WSTOPPED n -> Failed (Printf.sprintf "ocamlc was killed by signal %d" n)

exception Broken = Tests.Broken

let must r what arguments =
  match ocamlc r arguments with Fine -> () | Failed log -> raise (Broken (what ^ " does not compile: " ^ log))

(* interfaces first; the order among implementations is the task's *)
let compile_support r =
  let files = Wire.under "file/" r.sections in
  List.iter (fun (name, bytes) -> write_file name bytes) files;
  let ending suffix = List.filter (fun (name, _) -> Filename.check_suffix name suffix) files in
  List.iter (fun (name, _) -> must r ("the task's file " ^ name) [ "-c"; name ]) (ending ".mli" @ ending ".ml");
  List.map (fun (name, _) -> Filename.chop_suffix name ".ml" ^ ".cmo") (ending ".ml")

let start_compiler r =
  ignore (Warnings.parse_options false "-a");
  Clflags.color := Some Misc.Color.Never;
  Clflags.no_std_include := r.view <> "";
  Clflags.include_dirs := ("." :: (if r.view = "" then [] else [ r.view ])) @ r.includes;
  Clflags.all_ppx := r.ppx;
  Compmisc.init_path ();
  Env.set_unit_name (String.capitalize_ascii r.answer);
  Compmisc.initial_env ()

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"

let reply sections =
  let oc = open_descriptor_out 3 in
  List.iter (fun (name, bytes) -> Wire.write_section oc name bytes) sections;
  close_out oc

(* ------------------------------------------------------------------------------------------------------ answer *)

let facts ?(typed = 0) ?(total = 0) ?(forbidden = []) ?(syntax_error = false) ~compiled diagnostics =
  Wire.json_object
    [ "typed", string_of_int typed; "total", string_of_int total; "compiled", string_of_bool compiled;
      "syntax_error", string_of_bool syntax_error;
      "forbidden", Wire.json_list (List.map Wire.json_string forbidden);
      "diagnostics", Wire.json_list (List.map Diagnostic.json diagnostics) ]

let typed_interface env r =
  match Wire.find r.sections "signature" with
  | None -> None
  | Some text ->
    write_file (r.answer ^ ".mli") text;
    must r "the task's signature" [ "-c"; r.answer ^ ".mli" ];
    let parsed = Pparse.apply_rewriters_sig ~tool_name:"ocamlc" (Typing.parse_interface (r.answer ^ ".mli") text) in
    Some (parsed, (Typemod.type_interface env parsed).sig_type)

let first_diagnostic ~stage log =
  { Diagnostic.stage; code = None; line = None; column = None; message = Diagnostic.clip (String.trim log) }

let compile_answer r source (verdict : Typing.verdict) =
  let complete = facts ~typed:verdict.typed ~total:verdict.total ~forbidden:verdict.forbidden in
  if verdict.typed < verdict.total || verdict.total = 0 then [ "facts", complete ~compiled:false verdict.diagnostics ]
  else begin
    write_file (r.answer ^ ".ml") source;
    match ocamlc r [ "-c"; r.answer ^ ".ml" ] with
    | Failed log -> [ "facts", complete ~compiled:false [ first_diagnostic ~stage:"compile" log ] ]
    | Fine ->
      let outputs = List.filter exists [ r.answer ^ ".cmi"; r.answer ^ ".cmo" ] in
      ("facts", complete ~compiled:true []) :: List.map (fun name -> "out/" ^ name, read_file name) outputs
  end

let answer r =
  ignore (compile_support r);
  let env = start_compiler r in
  let interface = typed_interface env r in
  let source = Wire.get r.sections "answer" in
  match Typing.parse_implementation (r.answer ^ ".ml") source with
  | exception exn -> [ "facts", facts ~syntax_error:true ~compiled:false [ Diagnostic.of_exn ~stage:"types" exn ] ]
  | structure ->
    let structure = Pparse.apply_rewriters_str ~tool_name:"ocamlc" structure in
    compile_answer r source (Typing.judge env ~interface structure)

(* ------------------------------------------------------------------------------------------------------- tests *)

let plan ?mismatch total =
  let text = match mismatch with Some m -> Wire.json_string m | None -> "null" in
  "plan", Wire.json_object [ "total", string_of_int total; "mismatch", text ]

(* What may be told of a compiler's complaint about the tests: a name that they need, and no more of their text. *)
let needed log =
  match Str.search_forward (Str.regexp "Unbound \\(value\\|module\\|constructor\\|type constructor\\|record field\\) \\([A-Za-z0-9_.']+\\)") log 0 with
  | exception Not_found -> "the types of the answer do not fit the tests"
  | _ -> Printf.sprintf "the tests need the %s %s, which the answer does not define" (Str.matched_group 1 log) (Str.matched_group 2 log)

let line_of log =
  match Str.search_forward (Str.regexp "line \\([0-9]+\\)") log 0 with
  | exception Not_found -> ""
  | _ -> " (line " ^ Str.matched_group 1 log ^ " of the tests)"

let mentions text log = match Str.search_forward (Str.regexp_string text) log 0 with _ -> true | exception Not_found -> false

let framework r = if Wire.get r.sections "framework" = "ounit2" then Tests.Ounit2 else Tests.Assert

let rewritten r env =
  let source = Wire.get r.sections "tests" in
  match Typing.parse_implementation "tests.ml" source with
  | exception exn ->
    let d = Diagnostic.of_exn ~stage:"tests" exn in
    let line = match d.line with Some n -> Printf.sprintf " (line %d)" n | None -> "" in
    raise (Broken (Printf.sprintf "the tests do not parse%s: %s" line d.message))
  | structure ->
    let known name =
      match Env.find_module_by_name (Longident.Lident name) env with _ -> true | exception _ -> false
    in
    Tests.rewrite ~framework:(framework r) ~answer:(String.capitalize_ascii r.answer)
      ~secret:(Wire.get r.sections "secret") ~declared:r.declared ~known structure

let tests r =
  let support = compile_support r in
  List.iter (fun (name, bytes) -> write_file name bytes) (Wire.under "in/" r.sections);
  let env = start_compiler r in
  let structure, total = rewritten r env in
  Location.input_name := "tests.ml";
  Pparse.write_ast Structure (Filename.concat work "gradus_tests.ml") structure;
  match ocamlc r [ "-c"; "gradus_tests.ml" ] with
  | Failed log when r.declared ->
    raise (Broken ("the tests do not type against the task's signature" ^ line_of log ^ ": " ^ needed log))
  | Failed log -> [ plan total ~mismatch:(needed log) ]
  | Fine ->
    let archives = Wire.lines (Wire.get r.sections "archives") in
    let harness = Wire.lines (Wire.get r.sections "harness") in
    let units = archives @ harness @ support @ [ r.answer ^ ".cmo"; "gradus_tests.cmo" ] in
    match ocamlc { r with ppx = [] } ("-o" :: "program" :: units) with
    | Fine -> [ plan total; "out/program", read_file "program" ]
    | Failed log when mentions (Printf.sprintf "(required by `%s')" (String.capitalize_ascii r.answer)) log ->
      [ plan total ~mismatch:"the answer needs a module that is not linked to it: only the packages of the task are" ]
    | Failed log -> raise (Broken ("the program of answer and tests does not link: " ^ log))

let () =
  Sys.chdir work;
  let r = request (Wire.read_sections stdin) in
  let run = match Sys.argv.(1) with "answer" -> answer | "tests" -> tests | other -> failwith ("no command " ^ other) in
  reply (match run r with sections -> sections | exception Broken why -> [ "broken", why ])
