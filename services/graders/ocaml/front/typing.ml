(* What of an answer types: every top-level item on its own, and every name that the task declares. Where it declares some,
   these are what counts, and items that do not type count against them: what was not asked for earns nothing.
   An item that does not type is replaced by a hole of the declared (or any) type, so one mistake is one error and does
   not spoil the items after it. *)

open Parsetree

type verdict = { total : int; typed : int; diagnostics : Diagnostic.t list; forbidden : string list }

let all_typed v = v.total > 0 && v.typed = v.total

let stage = "types"

(* ----------------------------------------------------------------------------------------------------- holes *)

let rec variables pattern =
  match pattern.ppat_desc with
  | Ppat_var name -> [ name ]
  | Ppat_alias (inner, name) -> name :: variables inner
  | Ppat_constraint (inner, _) | Ppat_open (_, inner) | Ppat_lazy inner | Ppat_exception inner -> variables inner
  | Ppat_tuple inners | Ppat_array inners -> List.concat_map variables inners
  | Ppat_record (fields, _) -> List.concat_map (fun (_, inner) -> variables inner) fields
  | Ppat_construct (_, Some (_, inner)) | Ppat_variant (_, Some inner) -> variables inner
  | Ppat_or (left, _) -> variables left
  | _ -> []

let hole loc =
  let false_ = Ast_helper.Exp.construct ~loc (Location.mkloc (Longident.Lident "false") loc) None in
  Ast_helper.Exp.assert_ ~loc false_

(* the same names with nothing behind them; None where an item binds no values *)
let holed declared item =
  match item.pstr_desc with
  | Pstr_value (_, bindings) ->
    let bind (name : string Location.loc) =
      let body = hole name.loc in
      let body =
        match List.assoc_opt name.txt declared with
        | Some core_type -> Ast_helper.Exp.constraint_ ~loc:name.loc body core_type
        | None -> body
      in
      Ast_helper.Vb.mk ~loc:name.loc (Ast_helper.Pat.var ~loc:name.loc name) body
    in
    (match List.concat_map (fun binding -> variables binding.pvb_pat) bindings with
     | [] -> None
     | names -> Some (Ast_helper.Str.value ~loc:item.pstr_loc Asttypes.Nonrecursive (List.map bind names)))
  | Pstr_type (flag, declarations) ->
    let abstract d = { d with ptype_kind = Ptype_abstract; ptype_manifest = None; ptype_cstrs = [] } in
    Some { item with pstr_desc = Pstr_type (flag, List.map abstract declarations) }
  | _ -> None

let type_item env item =
  Typecore.reset_delayed_checks ();
  let typed, signature, _, env = Compiler.type_structure env [ item ] in
  Typecore.force_delayed_checks ();
  typed, signature, env

(* ----------------------------------------------------------------------------------------------- declarations *)

let declared_values interface =
  List.filter_map
    (fun item -> match item.psig_desc with Psig_value v -> Some (v.pval_name.txt, v.pval_type) | _ -> None)
    interface

type declaration = Met | Unmet of Diagnostic.t option

let missing name =
  { Diagnostic.stage; code = Some "missing"; line = None; column = None;
    message = Printf.sprintf "the answer does not define %s, which the task asks for" name }

(* One declaration at a time against what the answer has; types and modules first, as values depend on them.
   A value that only a hole stands for ([broken]) is not met, but its mistake was told already. *)
let check_declarations env ~broken (have : Types.signature) (want : Types.signature) =
  let is_value = function Types.Sig_value _ -> true | _ -> false in
  let values, others = List.partition is_value want in
  let defined name =
    List.find_map
      (function Types.Sig_value (id, v, _) when Ident.name id = name -> Some v.Types.val_loc | _ -> None)
      (List.rev have)
  in
  let judge items place =
    match Compiler.check_signature env ~have ~want:items with
    | () -> Met
    | exception exn ->
      let line, column = place in
      Unmet (Some { (Diagnostic.of_exn ~stage exn) with line; column })
  in
  let judge_value value =
    match value with
    | Types.Sig_value (id, _, _) ->
      let name = Ident.name id in
      if List.mem name broken then Unmet None
      else (match defined name with
            | None -> Unmet (Some (missing name))
            | Some loc -> judge (others @ [ value ]) (Diagnostic.place loc))
    | _ -> Met
  in
  (if others = [] then [] else [ judge others (None, None) ]) @ List.map judge_value values

(* ------------------------------------------------------------------------------------------------------- whole *)

let parse_implementation file source =
  let lexbuf = Lexing.from_string source in
  Location.init lexbuf file;
  Parse.implementation lexbuf

let parse_interface file source =
  let lexbuf = Lexing.from_string source in
  Location.init lexbuf file;
  Parse.interface lexbuf

let bound item =
  match item.pstr_desc with
  | Pstr_value (_, bindings) ->
    List.concat_map (fun b -> List.map (fun (n : string Location.loc) -> n.txt) (variables b.pvb_pat)) bindings
  | _ -> []

type progress = {
  env : Env.t;
  signature : Types.signature;
  typed_items : int;
  broken : string list;
  refused : Forbidden.refusal list;
  errors : Diagnostic.t list; (* latest first *)
}

let max_errors_per_item = 10

(* The smallest expression around a place, with a hole in its stead. *)
let patched (place : Location.t) item =
  let from = place.loc_start.pos_cnum and till = place.loc_end.pos_cnum in
  let around (l : Location.t) = (not l.loc_ghost) && l.loc_start.pos_cnum <= from && till <= l.loc_end.pos_cnum in
  let width (l : Location.t) = l.loc_end.pos_cnum - l.loc_start.pos_cnum in
  let best = ref None in
  let look self e =
    (match !best with
     | Some l when width l <= width e.pexp_loc -> ()
     | _ -> if around e.pexp_loc then best := Some e.pexp_loc);
    Ast_iterator.default_iterator.expr self e in
  let iterator = { Ast_iterator.default_iterator with expr = look } in
  iterator.structure_item iterator item;
  let replace target =
    let expr self e = if e.pexp_loc = target then hole target else Ast_mapper.default_mapper.expr self e in
    let mapper = { Ast_mapper.default_mapper with expr } in
    mapper.structure_item mapper item
  in
  Option.map replace !best

let place_of exn =
  match Location.error_of_exn exn with Some (`Ok report) -> report.main.loc | _ -> Location.none

(* Every error of an item that does not type, first one first, and the item with holes where they are, if it types so. *)
let rec errors_of env item exn left =
  let error = Diagnostic.of_exn ~stage exn in
  match if left = 0 then None else patched (place_of exn) item with
  | None -> [ error ], None
  | Some item ->
    (match type_item env item with
     | result -> [ error ], Some result
     | exception next ->
       let more, result = errors_of env item next (left - 1) in
       error :: List.filter (( <> ) error) more, result)

let type_items env ~unit declared structure =
  Forbidden.reset ();
  let own = Forbidden.own_modules structure in
  let broken_item p item exn =
    let errors, repaired = errors_of p.env item exn (max_errors_per_item - 1) in
    let used = match repaired with Some (typed, _, _) -> Forbidden.as_typed ~unit typed | None -> [] in
    let refused = p.refused @ Forbidden.mentioned ~own item @ used in
    let p = { p with errors = List.rev_append errors p.errors; broken = bound item @ p.broken; refused } in
    let is_declared = List.exists (fun name -> List.mem_assoc name declared) (bound item) in
    let holed () = match Option.map (type_item p.env) (holed declared item) with r -> r | exception _ -> None in
    (* what was declared is believed; what was not keeps the types that the rest of the item gives it *)
    match if is_declared || repaired = None then holed () else repaired with
    | Some (_, added, env) -> { p with env; signature = p.signature @ added }
    | None -> p
  in
  let step p item =
    match type_item p.env item with
    | typed, added, env ->
      let refused = p.refused @ Forbidden.as_typed ~unit typed in
      { p with env; signature = p.signature @ added; typed_items = p.typed_items + 1; refused }
    | exception exn -> broken_item p item exn
  in
  List.fold_left step { env; signature = []; typed_items = 0; broken = []; refused = []; errors = [] } structure

(* Names that tests need, where the task declares none: the answer's own mistakes say why it lacks some. *)
let check_needed ~broken (have : Types.signature) needed =
  let names = function
    | Types.Sig_type (_, d, _, _) -> Compiler.constructors d
    | Sig_value (id, _, _) | Sig_typext (id, _, _, _) | Sig_module (id, _, _, _, _) | Sig_class (id, _, _, _) -> [ Ident.name id ]
    | _ -> []
  in
  let defined = List.concat_map names have in
  List.map (fun name -> if List.mem name defined && not (List.mem name broken) then Met else Unmet None) needed

(* [interface]: what the task declares, parsed and typed; [unit]: the answer's own; [needed]: names of the answer that the
   tests of a task without a signature need, asked for when the answer was typed. *)
let judge env ~unit ~interface ~needed structure =
  let parsed, want = Option.value interface ~default:([], []) in
  let p = type_items env ~unit (declared_values parsed) structure in
  let declarations =
    (* of an answer that types as a whole, the compiler of the tests says what they lack *)
    if interface = None && p.errors = [] then []
    else if interface = None then check_needed ~broken:p.broken p.signature (needed ())
    else check_declarations p.env ~broken:p.broken p.signature want
  in
  let met = List.length (List.filter (( = ) Met) declarations) in
  let unmet = List.filter_map (function Unmet d -> d | Met -> None) declarations in
  let written = Forbidden.externals structure in
  let refused = written @ List.filter (fun r -> not (List.mem r written)) p.refused in
  let items = List.length structure in
  let total, typed =
    if declarations = [] then items, p.typed_items else List.length declarations + items - p.typed_items, met
  in
  { total; typed = (if refused = [] then typed else 0);
    diagnostics = Diagnostic.first (List.map Forbidden.diagnostic refused @ List.rev p.errors @ unmet);
    forbidden = List.sort_uniq compare (List.map (fun (r : Forbidden.refusal) -> r.what) refused) }
