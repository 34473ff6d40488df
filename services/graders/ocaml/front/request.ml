(* One request to the front, and what both ways of compiling read from it in the same way. *)

type t = {
  sections : Wire.sections;
  ocamlc : string;
  view : string; (* the part of the standard library that answers may see *)
  includes : string list;
  ppx : string list;
  answer : string; (* module name, first letter in lower case *)
  declared : bool; (* the task has a signature: the answer's interface holds nothing but what was asked for *)
}

exception Broken = Tests.Broken

let of_sections sections =
  { sections; ocamlc = Wire.get sections "ocamlc"; view = Wire.get sections "view";
    includes = Wire.lines (Wire.get sections "includes"); ppx = Wire.lines (Wire.get sections "ppx");
    answer = String.uncapitalize_ascii (Wire.get sections "module");
    declared = Wire.find sections "signature" <> None }

let module_name r = String.capitalize_ascii r.answer

let start_compiler r =
  ignore (Warnings.parse_options false "-a");
  Clflags.color := Some Misc.Color.Never;
  Clflags.no_std_include := r.view <> "";
  Clflags.include_dirs := ("." :: (if r.view = "" then [] else [ r.view ])) @ r.includes;
  Clflags.all_ppx := r.ppx;
  Compmisc.init_path ();
  Compiler.set_unit (module_name r);
  Compmisc.initial_env ()

(* ------------------------------------------------------------------------------------------------------- facts *)

let facts ?(typed = 0) ?(total = 0) ?(forbidden = []) ?(syntax_error = false) ~compiled diagnostics =
  Wire.json_object
    [ "typed", string_of_int typed; "total", string_of_int total; "compiled", string_of_bool compiled;
      "syntax_error", string_of_bool syntax_error;
      "forbidden", Wire.json_list (List.map Wire.json_string forbidden);
      "diagnostics", Wire.json_list (List.map Diagnostic.json diagnostics) ]

let facts_of (verdict : Typing.verdict) =
  facts ~typed:verdict.typed ~total:verdict.total ~forbidden:verdict.forbidden

(* [outside]: how many tests compare outside the answer's process; [types]: the share of the names that the tests need that the answer has, where the tests do not fit it *)
let plan ?mismatch ?(types = 1.) ?(outside = 0) ?(warnings = []) total =
  let text = match mismatch with Some m -> Wire.json_string m | None -> "null" in
  "plan", Wire.json_object
    [ "total", string_of_int total; "outside", string_of_int outside; "mismatch", text; "types", Printf.sprintf "%.6f" types;
      "warnings", Wire.json_list (List.map Wire.json_string warnings) ]

(* ------------------------------------------------------------------------------------------------------- tests *)

(* OCaml 5.3 writes names between quotes, and operators in parentheses. *)
let unquoted = Str.global_replace (Str.regexp "\"( \\| )\"\\|\"") ""

(* What may be told of a compiler's complaint about the tests: a name that they need, and no more of their text. *)
let needed log =
  let log = unquoted log in
  match Str.search_forward (Str.regexp "Unbound \\(value\\|module\\|constructor\\|type constructor\\|record field\\) \\([A-Za-z0-9_.']+\\)") log 0 with
  | exception Not_found -> "the types of the answer do not fit the tests"
  | _ ->
    Printf.sprintf "the tests need the %s %s, which the answer does not define" (Str.matched_group 1 log)
      (Str.matched_group 2 log)

(* What may be the answer's, where tests do not type without one. *)
let of_answer = [ "type"; "record field"; "class" ]

(* Operators such as [let*], which an answer may define and a control does not. *)
let binding_operators =
  let symbols = [ "$"; "&"; "*"; "+"; "-"; "/"; "<"; "="; ">"; "@"; "^"; "|" ] in
  List.concat_map (fun word -> List.map (fun symbol -> "value " ^ word ^ symbol) symbols) [ "let"; "and" ]

let mentions_of_answer exn =
  let message = (Diagnostic.of_exn ~stage:"tests" exn).message in
  List.exists (fun what -> Forbidden.starts ("Unbound " ^ what) message) of_answer

let framework r = if Wire.get r.sections "framework" = "ounit2" then Tests.Ounit2 else Tests.Assert

let library_of env =
  let found look lid = match look lid env with _ -> true | exception _ -> false in
  let is_standard = function Path.Pdot (Pident id, _), _ -> Ident.name id = "Stdlib" | _ -> false in
  { Tests.known = (fun name -> found Env.find_module_by_name (Longident.Lident name));
    standard = (fun name -> match Env.find_value_by_name (Longident.Lident name) env with v -> is_standard v | exception _ -> false);
    defined = (fun lid -> found Env.find_value_by_name lid || found Env.find_constructor_by_name lid) }

let parsed_tests r =
  match Typing.parse_implementation "tests.ml" (Wire.get r.sections "tests") with
  | exception exn ->
    let d = Diagnostic.of_exn ~stage:"tests" exn in
    let line = match d.line with Some n -> Printf.sprintf " (line %d)" n | None -> "" in
    raise (Broken (Printf.sprintf "the tests do not parse%s: %s" line d.message))
  | structure -> structure

(* the tests, rewritten, how many they are, what the referee is told of them, and for how many that is a value; [env] is what they see without the answer *)
let rewritten_tests r env structure =
  let signature = Option.map (Typing.parse_interface (r.answer ^ ".mli")) (Wire.find r.sections "signature") in
  Tests.rewrite ~framework:(framework r) ~answer:(module_name r) ~secret:(Wire.get r.sections "alias")
    ~signature ~library:(library_of env) structure

(* An answer takes no part: what tests do before they use it is looked at (front/control.ml). *)
let is_control r = Wire.find r.sections "control" <> None

(* The source of the control's answer; None where the signature has more than a control can be made of. *)
let control = function
  | None -> Some (Typing.parse_implementation "control.ml" "let gradus_control = ()")
  | Some (declared, _) -> (match Control.structure declared with structure -> Some structure | exception Control.Impossible -> None)

(* Tests for a control. *)
let controlled r names structure =
  if r.declared then Some structure
  else Tests.ending ~secret:(Wire.get r.sections "alias") ~answer:(module_name r) names structure

(* Names of the answer that the tests need; none where a signature says what was asked for. *)
let needed_names r env structure =
  if r.declared then [] else Tests.needed ~answer:(module_name r) ~library:(library_of env) structure

(* The share of these names that an answer has, which [env] knows. *)
let share_of_needed r env names =
  let has name =
    let path = Longident.Ldot (Lident (module_name r), name) in
    let found look = match look path env with _ -> true | exception _ -> false in
    found Env.find_value_by_name || found Env.find_constructor_by_name || found Env.find_module_by_name
  in
  if names = [] then 1. else float_of_int (List.length (List.filter has names)) /. float_of_int (List.length names)

(* The name that the answer would lend to tests that decide by it, of tests as they were typed. *)
let lent_name r env tree =
  let framework name =
    framework r = Tests.Ounit2
    && match Env.find_value_by_name (Ldot (Lident "OUnit2", name)) env with _ -> true | exception _ -> false
  in
  Tests.lent ~unit:(module_name r) ~framework ~known:(library_of env).known tree

let lending name = Printf.sprintf "the answer defines %s, by which the tests decide" name
