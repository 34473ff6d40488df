(* Where an OCaml file can be broken as people break them: a list of edits of its text, found in the compiler's own tree.
   Reads the file on standard input, replies with JSON on descriptor 3. Types nothing, runs nothing, judges nothing.
   Only what is the same in the trees of all versions from 4.13 on is looked at; places are offsets in bytes. *)

open Parsetree

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"

let max_edits = 4000

type edit = { kind : string; from : int; till : int; text : string }

let source = ref ""
let edits = ref []
let count = ref 0

let add kind from till text =
  let sound = 0 <= from && from <= till && till <= String.length !source in
  if sound && !count < max_edits && String.sub !source from (till - from) <> text then begin
    incr count;
    edits := { kind; from; till; text } :: !edits
  end

let from (l : Location.t) = l.loc_start.pos_cnum
let till (l : Location.t) = l.loc_end.pos_cnum
let text_of l = String.sub !source (from l) (till l - from l)
let replace kind l text = if not l.Location.loc_ghost then add kind (from l) (till l) text

(* ------------------------------------------------------------------------------------------------------- tables *)

let operators =
  [ "+", [ "-"; "+." ]; "-", [ "+"; "-." ]; "*", [ "+" ]; "/", [ "*"; "mod" ]; "mod", [ "/" ];
    "+.", [ "-."; "+" ]; "-.", [ "+." ]; "*.", [ "+."; "*" ]; "/.", [ "*." ];
    "<", [ "<="; ">" ]; "<=", [ "<" ]; ">", [ ">="; "<" ]; ">=", [ ">" ]; "=", [ "<>" ]; "<>", [ "=" ];
    "&&", [ "||" ]; "||", [ "&&" ]; "^", [ "@" ]; "@", [ "^" ]; "land", [ "lor" ]; "lsl", [ "lsr" ] ]

let functions =
  [ "min", "max"; "max", "min"; "fst", "snd"; "snd", "fst"; "succ", "pred"; "pred", "succ";
    "List.hd", "List.tl"; "List.rev", "Fun.id"; "List.map", "List.iter"; "List.fold_left", "List.fold_right";
    "List.for_all", "List.exists"; "List.exists", "List.for_all"; "List.length", "List.hd"; "String.length", "List.length";
    "List.filter", "List.map"; "List.rev_append", "List.append"; "List.mem", "List.assoc" ]

(* where the order of the two sides matters *)
let ordered = [ "-"; "/"; "mod"; "<"; "<="; ">"; ">="; "^"; "@"; "-."; "/." ]

let is_word name = name <> "" && (match name.[0] with 'a' .. 'z' | 'A' .. 'Z' | '_' -> true | _ -> false)

(* ------------------------------------------------------------------------------------------------- constructors *)

(* constructor -> those of its type that take as much *)
let relatives : (string, string) Hashtbl.t = Hashtbl.create 16

let takes c =
  match c.pcd_args with Pcstr_tuple types -> List.length types | Pcstr_record _ -> -1

let learn_constructors declaration =
  match declaration.ptype_kind with
  | Ptype_variant constructors ->
    List.iter
      (fun a ->
        List.iter
          (fun b -> if a != b && takes a = takes b then Hashtbl.add relatives a.pcd_name.txt b.pcd_name.txt)
          constructors)
      constructors
  | _ -> ()

let constructor e (name : Longident.t Location.loc) argument =
  match name.txt, argument with
  | Lident "true", None -> replace "constructor" e.pexp_loc "false"
  | Lident "false", None -> replace "constructor" e.pexp_loc "true"
  | Lident "Some", Some _ -> replace "constructor" e.pexp_loc "None"
  | Lident "::", Some { pexp_desc = Pexp_tuple [ head; tail ]; _ } ->
    let written = not (e.pexp_loc.loc_ghost || tail.pexp_loc.loc_ghost) in
    if written && from head.pexp_loc < from tail.pexp_loc then add "element" (from e.pexp_loc) (from tail.pexp_loc) ""
  | Lident own, _ -> List.iter (fun other -> replace "constructor" name.loc other) (Hashtbl.find_all relatives own)
  | _ -> ()

(* -------------------------------------------------------------------------------------------------- expressions *)

let swapped kind (a : Location.t) (b : Location.t) =
  let first, second = if from a < from b then a, b else b, a in
  if till first <= from second && not (a.loc_ghost || b.loc_ghost) then
    let between = String.sub !source (till first) (from second - till first) in
    add kind (from first) (till second) (text_of second ^ between ^ text_of first)

let infix (op : Longident.t Location.loc) name left right =
  List.iter (replace "operator" op.loc) (Option.value (List.assoc_opt name operators) ~default:[]);
  if List.mem name ordered then swapped "operands" left.pexp_loc right.pexp_loc

(* Where the order of two arguments changes nothing, as in `min`, to exchange them breaks nothing. *)
let commutes f =
  match f.pexp_desc with
  | Pexp_ident { txt = Lident name | Ldot (Lident ("Int" | "Float" | "String" | "Char" | "Bool"), name); _ } ->
    List.mem name [ "min"; "max"; "equal" ]
  | _ -> false

let call f arguments =
  match f.pexp_desc, arguments with
  | Pexp_ident ({ txt = Lident name; _ } as op), [ (Asttypes.Nolabel, a); (Asttypes.Nolabel, b) ]
    when List.mem_assoc name operators -> infix op name a b
  | Pexp_ident { txt = Lident name; _ }, _ when not (is_word name) -> ()
  | _, (Asttypes.Nolabel, a) :: (Asttypes.Nolabel, b) :: _ ->
    if not (commutes f) then swapped "arguments" a.pexp_loc b.pexp_loc;
    let last = snd (List.nth arguments (List.length arguments - 1)) in
    let before = snd (List.nth arguments (List.length arguments - 2)) in
    if till before.pexp_loc <= from last.pexp_loc then add "argument" (till before.pexp_loc) (till last.pexp_loc) ""
  | _ -> ()

let constant (l : Location.t) =
  let text = text_of l in
  match int_of_string_opt text with
  | Some n ->
    replace "constant" l (string_of_int (n + 1));
    if n > 0 then replace "constant" l (string_of_int (n - 1));
    replace "type" l (text ^ ".")
  | None ->
    let inside () = String.sub text 1 (String.length text - 2) in
    if String.length text > 2 && text.[0] = '\'' then replace "type" l (Printf.sprintf "\"%s\"" (inside ()))

let negated (c : expression) = replace "condition" c.pexp_loc (Printf.sprintf "not (%s)" (text_of c.pexp_loc))

(* [rec] between the start of a definition and the name that it defines *)
let without_rec start (binding : value_binding) =
  let name = from binding.pvb_pat.ppat_loc in
  match Str.search_backward (Str.regexp "\\brec\\b[ \t\n]*") !source (name - 1) with
  | at when at > start -> add "rec" at name ""
  | _ | (exception Not_found) -> ()

let misspelt (l : Location.t) name =
  let n = String.length name in
  if n >= 3 then replace "name" l (String.sub name 0 (n - 1))

let expression self e =
  (match e.pexp_desc with
   | Pexp_constant _ -> if not e.pexp_loc.loc_ghost then constant e.pexp_loc
   | Pexp_ident { txt = Lident name; loc } when is_word name ->
     Option.iter (replace "function" loc) (List.assoc_opt name functions);
     misspelt loc name
   | Pexp_ident { txt = Ldot (Lident m, name); loc } ->
     Option.iter (replace "function" loc) (List.assoc_opt (m ^ "." ^ name) functions)
   | Pexp_apply (f, arguments) -> call f arguments
   | Pexp_ifthenelse (c, _, _) -> negated c
   | Pexp_let (Recursive, binding :: _, _) -> without_rec (from e.pexp_loc) binding
   | Pexp_construct (name, argument) -> constructor e name argument
   | Pexp_sequence (a, b) when from a.pexp_loc < from b.pexp_loc -> add "statement" (from a.pexp_loc) (from b.pexp_loc) ""
   | _ -> ());
  Ast_iterator.default_iterator.expr self e

let cases self (all : case list) =
  let start c = from c.pc_lhs.ppat_loc and stop c = till c.pc_rhs.pexp_loc in
  (match all with
   | first :: second :: _ -> add "case" (start first) (start second) ""
   | _ -> ());
  let rec go = function
    | a :: (b :: _ as rest) -> add "case" (stop a) (stop b) ""; go rest
    | _ -> ()
  in
  go all;
  List.iter (fun c -> Option.iter negated c.pc_guard) all;
  Ast_iterator.default_iterator.cases self all

let structure_item self item =
  (match item.pstr_desc with
   | Pstr_value (Recursive, binding :: _) -> without_rec (from item.pstr_loc) binding
   | Pstr_type (_, declarations) -> List.iter learn_constructors declarations
   | _ -> ());
  Ast_iterator.default_iterator.structure_item self item

(* -------------------------------------------------------------------------------------------------------- words *)

(* small words that are easily forgotten *)
let forgotten = function
  | Parser.IN | THEN | RPAREN | END | DONE | MINUSGREATER | WITH | DO -> true
  | _ -> false

let words () =
  let lexbuf = Lexing.from_string !source in
  Lexer.init ();
  let rec go () =
    match Lexer.token lexbuf with
    | Parser.EOF -> ()
    | token ->
      if forgotten token then add "syntax" (Lexing.lexeme_start lexbuf) (Lexing.lexeme_end lexbuf) "";
      go ()
  in
  go ()

(* --------------------------------------------------------------------------------------------------------- main *)

let json e =
  Wire.json_object
    [ "kind", Wire.json_string e.kind; "start", string_of_int e.from; "end", string_of_int e.till;
      "text", Wire.json_string e.text ]

let found () =
  let lexbuf = Lexing.from_string !source in
  Location.init lexbuf "answer.ml";
  let structure = Parse.implementation lexbuf in
  let iterator = { Ast_iterator.default_iterator with expr = expression; cases; structure_item } in
  iterator.structure iterator structure;
  words ();
  List.rev !edits

let () =
  let b = Buffer.create 65536 in
  (try while true do Buffer.add_channel b stdin 1 done with End_of_file -> ());
  source := Buffer.contents b;
  ignore (Warnings.parse_options false "-a");
  let reply = match found () with
    | edits -> Wire.json_list (List.map json edits)
    | exception exn -> Wire.json_object [ "error", Wire.json_string (Printexc.to_string exn) ] in
  let oc = open_descriptor_out 3 in
  output_string oc reply;
  close_out oc
