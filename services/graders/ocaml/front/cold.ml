(* Compiles in processes of their own, with the stock compiler: for tasks with packages or files of their own, and as the
   yardstick for the warm way, which must come to the same verdicts.
     answer   types and compiles an answer; the tests do not exist in that box
     tests    rewrites, compiles and links the tests against a compiled answer; nothing of the answer runs *)

open Request

let work = "/tmp"
let max_log = 1 lsl 16

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
  | Unix.WEXITED _ -> let text = read_file "log" in Failed (String.sub text 0 (min max_log (String.length text)))
  | Unix.WSIGNALED n | Unix.WSTOPPED n -> Failed (Printf.sprintf "ocamlc was killed by signal %d" n)

let must r what arguments =
  match ocamlc r arguments with Fine -> () | Failed log -> raise (Broken (what ^ " does not compile: " ^ log))

(* interfaces first; the order among implementations is the task's *)
let compile_support r =
  let files = Wire.under "file/" r.sections in
  List.iter (fun (name, bytes) -> write_file name bytes) files;
  let ending suffix = List.filter (fun (name, _) -> Filename.check_suffix name suffix) files in
  List.iter (fun (name, _) -> must r ("the task's file " ^ name) [ "-c"; name ]) (ending ".mli" @ ending ".ml");
  List.map (fun (name, _) -> Filename.chop_suffix name ".ml" ^ ".cmo") (ending ".ml")

(* ------------------------------------------------------------------------------------------------------ answer *)

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

let compile_answer r write (verdict : Typing.verdict) =
  if not (Typing.all_typed verdict) then [ "facts", facts_of verdict ~compiled:false verdict.diagnostics ]
  else begin
    write (r.answer ^ ".ml");
    match ocamlc r [ "-c"; r.answer ^ ".ml" ] with
    | Failed log -> [ "facts", facts_of verdict ~compiled:false [ first_diagnostic ~stage:"compile" log ] ]
    | Fine ->
      let outputs = List.filter exists [ r.answer ^ ".cmi"; r.answer ^ ".cmo" ] in
      ("facts", facts_of verdict ~compiled:true []) :: List.map (fun name -> "out/" ^ name, read_file name) outputs
  end

let answer r =
  ignore (compile_support r);
  let env = start_compiler r in
  let interface = typed_interface env r in
  let write_tree structure name = Pparse.write_ast Structure (Filename.concat work name) structure in
  if is_control r then
    match control interface with
    | None -> [ "facts", facts ~compiled:false [] ]
    | Some structure -> compile_answer r (write_tree structure) { Typing.total = 1; typed = 1; diagnostics = []; forbidden = [] }
  else
  let source = Wire.get r.sections "answer" in
  match Typing.parse_implementation (r.answer ^ ".ml") source with
  | exception exn -> [ "facts", facts ~syntax_error:true ~compiled:false [ Diagnostic.of_exn ~stage:"types" exn ] ]
  | structure ->
    let structure = Pparse.apply_rewriters_str ~tool_name:"ocamlc" structure in
    (* this program lies where the harness does, which an answer does not see *)
    let needed () =
      if r.declared || Wire.find r.sections "tests" = None then []
      else begin
        Compiler.look_in (Filename.dirname Sys.executable_name);
        needed_names r env (Pparse.apply_rewriters_str ~tool_name:"ocamlc" (parsed_tests r))
      end in
    compile_answer r (fun name -> write_file name source) (Typing.judge env ~unit:(module_name r) ~interface ~needed structure)

(* ------------------------------------------------------------------------------------------------------- tests *)

let line_of log =
  match Str.search_forward (Str.regexp "line \\([0-9]+\\)") log 0 with
  | exception Not_found -> ""
  | _ -> " (line " ^ Str.matched_group 1 log ^ " of the tests)"

let mentions text log = match Str.search_forward (Str.regexp_string text) log 0 with _ -> true | exception Not_found -> false

let typed env structure =
  match Compiler.type_structure env (Pparse.apply_rewriters_str ~tool_name:"ocamlc" structure) with
  | tree, _, _, _ -> Some tree
  | exception _ -> None

let unit_in file =
  let ic = open_in_bin file in
  seek_in ic (String.length Config.cmo_magic_number);
  seek_in ic (input_binary_int ic);
  let unit_ : Cmo_format.compilation_unit = input_value ic in
  close_in ic;
  unit_

(* A linked program without its tests, and the tests: code to run when the answer is initialised (harness/gradus_load.ml) and
   constants, by their places. All addresses in both are final. A program is sections, "<name, 4><length, 4>" of each, how
   many they are, and what kind of file this is (12); its code ends with the tests', the standard library's exit and STOP. *)
let cut program =
  let number at = Int32.to_int (String.get_int32_be program at) in
  let end_ = String.length program - 16 in
  let entries = List.init (number end_) (fun i -> let at = end_ - (8 * (number end_ - i)) in String.sub program at 4, number (at + 4)) in
  let first = end_ - List.fold_left (fun sum (_, length) -> sum + 8 + length) 0 entries in
  let _, sections =
    List.fold_left_map (fun at (name, length) -> at + length, (name, String.sub program at length)) first entries in
  let word n = let b = Bytes.create 4 in Bytes.set_int32_le b 0 (Int32.of_int n); Bytes.to_string b in
  let tests = unit_in "gradus_tests.cmo" in
  let size = tests.cu_codesize and code = List.assoc "CODE" sections in
  let after = (unit_in (Load_path.find "std_exit.cmo")).cu_codesize + 4 in
  let at = String.length code - after - size in
  let own = String.sub code at size in
  let globals : Obj.t array = Marshal.from_string (List.assoc "DATA" sections) 0 in
  let constant = function
    | Cmo_format.Reloc_literal _, at ->
      let place = Int32.to_int (String.get_int32_le own at) in
      let value = globals.(place) in
      globals.(place) <- Obj.repr 0;
      Some (place, value)
    | _ -> None in
  let constants = List.filter_map constant tests.cu_reloc in
  let skip = word Opcodes.opBRANCH ^ word ((size / 4) - 1) in
  let code = String.concat "" [ String.sub code 0 at; skip; String.make (size - 8) '\000'; String.sub code (at + size) after ] in
  let left = function
    | "CODE", _ -> "CODE", code
    | "DATA", _ -> "DATA", Marshal.to_string globals []
    | section -> section in
  let sections = List.map left sections in
  let entry (name, bytes) = let b = Bytes.create 4 in Bytes.set_int32_be b 0 (Int32.of_int (String.length bytes)); name ^ Bytes.to_string b in
  ( String.concat "" ((String.sub program 0 first :: List.map snd sections) @ List.map entry sections @ [ String.sub program end_ 16 ]),
    Marshal.to_string (Bytes.of_string (own ^ word Opcodes.opRETURN ^ word 1), constants) [] )

let tests r =
  let support = compile_support r in
  List.iter (fun (name, bytes) -> write_file name bytes) (Wire.under "in/" r.sections);
  let env = start_compiler r in
  Compiler.set_unit "Gradus_tests"; (* to which the answer is another unit *)
  let parsed = parsed_tests r in
  let structure, total, sheet = rewritten_tests r env parsed in
  match if is_control r then controlled r (needed_names r env parsed) structure else Some structure with
  | None -> [ plan total ~mismatch:"the tests need more of the answer than values" ]
  | Some structure ->
  Location.input_name := "tests.ml";
  let tree = typed env structure in
  let known = Option.fold ~none:[] ~some:Split.known tree in
  let structure = if known = [] then structure else Split.taken_out_as_written ~harness:(Tests.harness_name (Wire.get r.sections "alias")) known structure in
  Pparse.write_ast Structure (Filename.concat work "gradus_tests.ml") (Tests.hiding structure);
  match ocamlc r [ "-c"; "gradus_tests.ml" ] with
  | Failed log when r.declared ->
    raise (Broken ("the tests do not type against the task's signature" ^ line_of log ^ ": " ^ needed log))
  | Failed log when is_control r ->
    let needs what = mentions ("Unbound " ^ what) (unquoted log) in
    (* a functor of the tests asks for more than the control has *)
    let is_applied = mentions "is required but not provided" log in
    if is_applied || List.exists needs (binding_operators @ of_answer) then [ plan total ~mismatch:"the tests need more of the answer than values" ]
    else raise (Broken ("the tests do not type" ^ line_of log))
  | Failed log ->
    let names = needed_names r env (Pparse.apply_rewriters_str ~tool_name:"ocamlc" parsed) in
    [ plan total ~mismatch:(needed log) ~types:(share_of_needed r env names) ]
  | Fine ->
    match if r.declared then None else Option.bind tree (lent_name r env) with
    | Some name -> [ plan total ~mismatch:(lending name) ]
    | None ->
    Private.rename Private.used_by_tests (Filename.concat work "gradus_tests.cmo");
    let archives = Wire.lines (Wire.get r.sections "archives") in
    let harness = Wire.lines (Wire.get r.sections "harness") in
    let load = Filename.concat (Filename.dirname Sys.executable_name) "gradus_load.cmo" in
    let units = archives @ harness @ support @ [ r.answer ^ ".cmo"; load; "gradus_tests.cmo" ] in
    match ocamlc { r with ppx = [] } ("-o" :: "program" :: units) with
    | Fine ->
      let program, tests = cut (read_file "program") in
      let sheet, outside = sheet known in
      let warnings = Option.fold ~none:[] ~some:(Lint.warnings ~unit:(module_name r)) tree in
      [ plan total ~outside ~warnings; "out/program", program; "sheet", sheet ^ tests ]
    | Failed log when mentions (Printf.sprintf "(required by `%s')" (module_name r)) log ->
      [ plan total ~mismatch:"the answer needs a module that is not linked to it: only the packages of the task are" ]
    | Failed log -> raise (Broken ("the program of answer and tests does not link: " ^ log))

