(* What differs in compiler-libs between OCaml 4.13 and 5.3, behind one face. The only file that goes through the C
   preprocessor: VERSION is 413, 503 and so on. Judges nothing. *)

open Parsetree

let version = VERSION

(* ------------------------------------------------------------------------------------------ functions, as written *)

#if VERSION >= 502
(* label, default and pattern of the first parameter, and what is left of the function *)
let parameter e =
  match e.pexp_desc with
  | Pexp_function ({ pparam_desc = Pparam_val (label, default, pattern); _ } :: others, return, body) ->
    let rest =
      match others, return, body with
      | [], None, Pfunction_body body -> body
      | [], Some (Pconstraint t), Pfunction_body body -> Ast_helper.Exp.constraint_ ~loc:body.pexp_loc body t
      | [], Some (Pcoerce (from, t)), Pfunction_body body -> Ast_helper.Exp.coerce ~loc:body.pexp_loc body from t
      | _ -> { e with pexp_desc = Pexp_function (others, return, body) }
    in
    Some (label, default, pattern, rest)
  | _ -> None

let fun_ ~loc label default pattern body =
  let parameter = { pparam_loc = loc; pparam_desc = Pparam_val (label, default, pattern) } in
  Ast_helper.Exp.function_ ~loc [ parameter ] None (Pfunction_body body)
#else
let parameter e = match e.pexp_desc with Pexp_fun (label, default, p, rest) -> Some (label, default, p, rest) | _ -> None
let fun_ ~loc label default pattern body = Ast_helper.Exp.fun_ ~loc label default pattern body
#endif

(* the cases of [function p -> e | ...] *)
#if VERSION >= 502
let cases_of e = match e.pexp_desc with Pexp_function ([], None, Pfunction_cases (cases, _, _)) -> Some cases | _ -> None
let function_of e cases =
  match e.pexp_desc with
  | Pexp_function (ps, t, Pfunction_cases (_, loc, attributes)) -> { e with pexp_desc = Pexp_function (ps, t, Pfunction_cases (cases, loc, attributes)) }
  | _ -> e
#else
let cases_of e = match e.pexp_desc with Pexp_function cases -> Some cases | _ -> None
let function_of e cases = { e with pexp_desc = Pexp_function cases }
#endif

(* what a constant is, without its place *)
#if VERSION >= 503
let constant (c : constant) = c.pconst_desc
#else
let constant (c : constant) = c
#endif

let is_function e = match e.pexp_desc with Pexp_function _ -> true | _ -> Option.is_some (parameter e)

(* What [let p : t = e] binds is [(e : t)], and a binding to another pattern has no use for [t]. *)
#if VERSION >= 501
let bound_expression b =
  match b.pvb_constraint with
  | Some (Pvc_constraint { locally_abstract_univars = []; typ }) -> Ast_helper.Exp.constraint_ ~loc:b.pvb_loc b.pvb_expr typ
  | _ -> b.pvb_expr

let rebound b pattern expression = { b with pvb_pat = pattern; pvb_expr = expression; pvb_constraint = None }
#else
let bound_expression b = b.pvb_expr
let rebound b pattern expression = { b with pvb_pat = pattern; pvb_expr = expression }
#endif

(* --------------------------------------------------------------------------------------------------------- types *)

let type_structure env items =
#if VERSION >= 414
  let tree, signature, names, _shape, env = Typemod.type_structure env items in
#else
  let tree, signature, names, env = Typemod.type_structure env items in
#endif
  tree, signature, names, env

#if VERSION >= 503
let met, kept = false, true
#else
let met, kept = Includemod.Mark_neither, Includemod.Mark_positive
#endif

(* Raises unless a structure with the signature [have] has all of [want]. *)
let check_signature env ~have ~want = ignore (Includemod.signatures env ~mark:met have want)

(* how a unit of the signature [have] becomes one of the signature [want] *)
let coercion env ~unit ~have ~want =
#if VERSION >= 414
  fst (Includemod.compunit env ~mark:kept unit have (unit ^ ".mli") want Shape.dummy_mod)
#else
  Includemod.compunit env ~mark:kept unit have (unit ^ ".mli") want
#endif

#if VERSION >= 414
let check_closed = Typemod.check_nongen_signature
#else
let check_closed = Typemod.check_nongen_schemes
#endif

#if VERSION >= 414
let desc = Types.get_desc
let same = Types.eq_type
#else
let desc t = (Btype.repr t).Types.desc
let same a b = Btype.repr a == Btype.repr b
#endif

(* ['a -> 'b]: from anything to anything *)
let is_cast t =
  match desc t with
  | Tarrow (_, from, till, _) ->
    (match desc from, desc till with Tvar _, Tvar _ -> not (same from till) | _ -> false)
  | _ -> false

(* the type that an extension constructor is declared to make *)
let results (c : Typedtree.extension_constructor) =
  match c.ext_kind with
#if VERSION >= 414
  | Text_decl (_, _, result) -> Option.to_list result
#else
  | Text_decl (_, result) -> Option.to_list result
#endif
  | _ -> []

(* The compilation unit that declared a value; None for what no unit did. *)
#if VERSION >= 414
let home (vd : Types.value_description) =
  match vd.val_uid with Types.Uid.Item { comp_unit; _ } -> Some comp_unit | _ -> None
#else
(* 4.13 hides what it is made of, and formatting it costs more than all other checks *)
type uid = Compilation_unit of string | Item of { comp_unit : string; id : int } | Internal | Predef of string

let home (vd : Types.value_description) =
  match (Obj.magic vd.val_uid : uid) with Item { comp_unit; _ } -> Some comp_unit | _ -> None
#endif

let constructors (d : Types.type_declaration) =
  match d.type_kind with
  | Type_variant (constructors, _) -> List.map (fun (c : Types.constructor_declaration) -> Ident.name c.cd_id) constructors
  | _ -> []

let set_unit name =
#if VERSION >= 503
  Env.set_current_unit (Unit_info.make ~check_modname:false ~source_file:(String.uncapitalize_ascii name ^ ".ml") Impl name)
#else
  Env.set_unit_name name
#endif

let look_in folder =
#if VERSION >= 502
  Load_path.add_dir ~hidden:false folder
#else
  Load_path.add_dir folder
#endif

#if VERSION >= 503
let text_of (message : Location.msg) = Format.asprintf "%a" Format_doc.Doc.format message.txt
#else
let text_of (message : Location.msg) = Format.asprintf "%t" message.txt
#endif

(* The variable that a pattern is; the one parameter of a function, None for [_], and its body. *)
#if VERSION >= 502
let variable (p : _ Typedtree.general_pattern) =
  match (p.pat_desc : _ Typedtree.pattern_desc) with Tpat_var (id, _, _) -> Some id | _ -> None

let typed_parameter (_ : Typedtree.expression) : (Ident.t option * Typedtree.expression) option = None
#else
let variable (type k) (p : k Typedtree.general_pattern) =
  match p.pat_desc with Typedtree.Tpat_var (id, _) -> Some id | _ -> None

let typed_parameter (e : Typedtree.expression) =
  match e.exp_desc with
  | Texp_function { cases = [ { c_lhs = { pat_desc = Tpat_any; _ }; c_guard = None; c_rhs } ]; _ } -> Some (None, c_rhs)
  | Texp_function { cases = [ { c_lhs; c_guard = None; c_rhs } ]; _ } ->
    Option.map (fun id -> Some id, c_rhs) (variable c_lhs)
  | _ -> None
#endif

(* ------------------------------------------------------------------------------------------------------ bytecode *)

(* bytecode, and the places in it that only the symbol table of the program that loads it can fill *)
let bytecode lambda =
#if VERSION >= 502
  let instructions, _ = Bytegen.compile_phrase lambda in
  let code, relocations, _ = Emitcode.to_memory instructions in
#else
  let init, functions = Bytegen.compile_phrase lambda in
  let code, relocations, _ = Emitcode.to_memory init functions in
#endif
  code, relocations
