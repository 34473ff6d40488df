(* What answers may not use: whatever steps outside the language, because with it, what the tests see is what the answer
   wants them to see. What counts is what the compiler resolved, never how it is written: a module by the path that is left
   when all aliases are followed, a value by the unit that declared it. The list and its reasons:
     external                    calls any C function, [Obj.magic] and the process's exit included
     Obj, Marshal, input_value   forge values of any type
     Callback                    replaces functions that the runtime calls without checking their type
     Weak, Ephemeron             see values while they die
     Lexing.engine, Parsing      run tables in C that trust whoever made them
     Domain                      runs beside the tests; the library's own unchecked accesses count on nobody doing so
     Camlinternal*               the untyped inside of objects, formats, lazy values and recursive modules
     *unsafe*                    the library's access without bounds, and bytes shared with strings
     Bigarray.reshape*           takes dimensions whose product overflows, and then reads and writes all of memory
     Gc                          Memprof, finalisers and alarms run the answer's code inside of others', the harness included;
                                 set and compact control the heap that the tests are in. What only collects or counts stays
     Gradus_*, OUnit2            the harness
     match that guards change    a guard or a lazy pattern that may change a mutable place which the match compares: the
                                 compiler reads it once (ocaml/ocaml#7241)
     include of sealed types     in indices of GADTs: the compiler takes such a type for different from the one it is
     exception Full = Empty      a constructor under a second name: tests take the two for different ones *)

open Types

type refusal = { what : string; why : string; loc : Location.t }

let refusal ?why what loc = { what; why = Option.value why ~default:(what ^ " is not allowed in an answer"); loc }

let starts prefix s = String.length s >= String.length prefix && String.sub s 0 (String.length prefix) = prefix

let contains part s =
  let n = String.length part in
  let rec go i = i + n <= String.length s && (String.sub s i n = part || go (i + 1)) in
  go 0

let modules =
  [ "Obj"; "Marshal"; "Callback"; "Weak"; "Ephemeron"; "Parsing"; "Dynlink"; "OUnit2" ]
  @ if Compiler.version >= 500 then [ "Domain" ] else []

(* the name under which people know a unit: [Obj] of [Stdlib__Obj] *)
let known_as unit_ = if starts "Stdlib__" unit_ then String.sub unit_ 8 (String.length unit_ - 8) else unit_

let forbidden_module name =
  let name = known_as name in
  List.mem name modules || starts "Camlinternal" name || starts "CamlinternaL" name || starts "Gradus_" name

(* of modules that are allowed otherwise; Gc's start, stop and discard are Memprof's *)
let values =
  [ "Stdlib", [ "input_value" ]; "Stdlib__Lexing", [ "engine"; "new_engine" ];
    "Stdlib__Bigarray", [ "reshape"; "reshape_0"; "reshape_1"; "reshape_2"; "reshape_3" ];
    "Stdlib__Gc",
    [ "set"; "compact"; "finalise"; "finalise_last"; "finalise_release"; "create_alarm"; "delete_alarm"; "start"; "stop";
      "discard"; "null_tracker"; "eventlog_pause"; "eventlog_resume" ] ]

(* also where a package declares them under a name of its own *)
let forbidden_primitive name =
  contains "unsafe" name
  || List.exists (fun prefix -> starts prefix name)
       [ "%obj_"; "caml_obj_"; "caml_input_value"; "caml_register_named_value"; "caml_ml_open_descriptor"; "caml_ba_reshape";
         "caml_memprof_"; "caml_weak_"; "caml_ephe_"; "caml_lex_engine"; "caml_new_lex_engine"; "caml_parse_engine";
         "caml_gc_set"; "caml_gc_compaction"; "caml_final_"; "caml_static_"; "caml_reify_"; "caml_dynlink_"; "caml_get_global_data";
         "caml_realloc_global"; "caml_invoke_traced" ]
  || List.mem name [ "%bytes_to_string"; "%bytes_of_string" ]

(* Why this value, which goes by this name, may not be used; None where it may. [unit]: the answer's own. *)
let forbidden_value ~unit name (vd : value_description) =
  let home = Option.value (Compiler.home vd) ~default:unit in
  if home = unit then None
  else if forbidden_module home then Some (known_as home)
  else if contains "unsafe" name then Some name
  else
    match vd.val_kind with
    | Val_prim p when forbidden_primitive p.prim_name || (p.prim_name = "%identity" && Compiler.is_cast vd.val_type) -> Some name
    | _ -> if List.mem name (Option.value (List.assoc_opt home values) ~default:[]) then Some name else None

(* The forbidden module that a path leads to. *)
let leads_to env path =
  let path = match Env.normalize_module_path None env path with path -> path | exception _ -> path in
  let rec names = function Path.Pdot (inner, name) -> names inner @ [ name ] | path -> [ Ident.name (Path.head path) ] in
  if not (Ident.persistent (Path.head path)) then None
  else
    match names path with
    | unit_ :: _ when forbidden_module unit_ -> Some (known_as unit_)
    | "Stdlib" :: name :: _ when forbidden_module name -> Some name
    | _ -> None

(* ------------------------------------------------------------------------------------------------ under a new home *)

(* A value is known by the unit that declared it, and a signature of the answer's own would be a new home for it. So nothing
   forbidden may be taken into one: [laundered source target] is what is, when a module of the first type is given the
   second. Functors take theirs from the other side. What cannot be looked into might hold anything. *)

let scrape env mty = match Env.scrape_alias env mty with mty -> mty | exception _ -> mty

let rec held ~unit env mty =
  match scrape env mty with
  | Mty_signature items -> List.find_map (held_by_item ~unit env) items
  | Mty_functor (parameter, result) ->
    (match parameter with
     | Named (_, p) -> (match held ~unit env p with None -> held ~unit env result | found -> found)
     | Unit -> held ~unit env result)
  | Mty_ident _ | Mty_alias _ -> None
  | _ -> None

and held_by_item ~unit env = function
  | Sig_value (id, vd, _) -> forbidden_value ~unit (Ident.name id) vd
  | Sig_module (id, _, { md_type = Mty_alias path; _ }, _, _) when leads_to env path <> None -> leads_to env path
  | Sig_module (_, _, { md_type = Mty_alias _; _ }, _, _) -> None (* stays what it is *)
  | Sig_module (_, _, md, _, _) -> held ~unit env md.md_type
  | _ -> None

let rec laundered ~unit env source target =
  match scrape env target with
  | Mty_signature wanted ->
    (match scrape env source with
     | Mty_signature have -> List.find_map (laundered_item ~unit env have) wanted
     | _ -> None)
  | Mty_functor (wanted, result) ->
    (match scrape env source with
     | Mty_functor (have, source_result) ->
       let through_parameter =
         match wanted, have with Named (_, w), Named (_, h) -> laundered ~unit env w h | _ -> None
       in
       if through_parameter <> None then through_parameter else laundered ~unit env source_result result
     | _ -> None)
  | Mty_alias _ -> None
  | _ -> if source == target then None else held ~unit env source

and laundered_item ~unit env have = function
  | Sig_value (id, wanted, _) ->
    let name = Ident.name id in
    let value = function Sig_value (id, vd, _) when Ident.name id = name -> Some vd | _ -> None in
    (* what is still known for what it is will be met where it is used *)
    if forbidden_value ~unit name wanted <> None then None
    else Option.bind (List.find_map value (List.rev have)) (forbidden_value ~unit name)
  | Sig_module (id, _, wanted, _, _) ->
    let inner = function Sig_module (i, _, md, _, _) when Ident.name i = Ident.name id -> Some md | _ -> None in
    Option.bind (List.find_map inner (List.rev have)) (fun (md : module_declaration) ->
        match md.md_type, wanted.md_type with
        | _, Mty_alias _ -> None
        | Mty_alias path, _ when leads_to env path <> None -> leads_to env path
        | source, target -> laundered ~unit env source target)
  | _ -> None

(* ------------------------------------------------------------------------------------------ unsound matches *)

(* What the answer's items so far define: functions by where, and types that an [include] or [open] brought out of a
   sealed module, which may be equal to others, while the compiler takes them for types of their own. *)
let bodies : (int, Typedtree.expression) Hashtbl.t = Hashtbl.create 16
let sealed : Ident.t list ref = ref []

let reset () = Hashtbl.reset bodies; sealed := []

let note_bodies structure =
  let value_binding self (b : Typedtree.value_binding) =
    if Compiler.variable b.vb_pat <> None then Hashtbl.replace bodies b.vb_pat.pat_loc.loc_start.pos_cnum b.vb_expr;
    Tast_iterator.default_iterator.value_binding self b in
  let iterator = { Tast_iterator.default_iterator with value_binding } in
  iterator.structure iterator structure

let is_arrow (e : Typedtree.expression) =
  let t = match Ctype.expand_head e.exp_env e.exp_type with t -> t | exception _ -> e.exp_type in
  match Compiler.desc t with Tarrow _ -> true | _ -> false

(* units of the library whose functions run no code but their own and what they are given *)
let plain =
  List.map (( ^ ) "Stdlib__")
    [ "List"; "Array"; "String"; "Bytes"; "Char"; "Int"; "Int32"; "Int64"; "Float"; "Bool"; "Option"; "Result"; "Either"; "Fun";
      "Hashtbl"; "Buffer"; "Queue"; "Stack"; "Uchar" ]

let changing =
  [ ":="; "incr"; "decr"; "set"; "fill"; "blit"; "sort"; "stable_sort"; "fast_sort"; "map_inplace"; "mapi_inplace"; "shuffle";
    "exit"; "at_exit"; "do_at_exit" ]

let max_arrows = 1000

(* How many arrows a type has; [max_arrows] where it is too deep to tell. *)
let arrows env t =
  let rec count depth t =
    let t = match Ctype.expand_head env t with t -> t | exception _ -> t in
    let n = ref (match Compiler.desc t with Tarrow _ -> 1 | _ -> 0) in
    if depth = 0 then max_arrows
    else begin
      Btype.iter_type_expr (fun t -> if !n < max_arrows then n := !n + count (depth - 1) t) t;
      !n
    end in
  count 12 t

(* Whether an expression certainly changes nothing. The functions that it calls must be visible: literals, functions of the
   answer that change nothing either, and functions of the library. A polymorphic one may return or call a function that it
   finds in data, where its variables stand for types with arrows. *)
let rec changes_nothing ~unit seen (e : Typedtree.expression) =
  let fine = ref true in
  let refuse () = fine := false in
  let known (e : Typedtree.expression) path (vd : value_description) =
    arrows e.exp_env e.exp_type <= arrows e.exp_env vd.val_type
    && match Compiler.home vd with
    | Some home when home = unit ->
      let at = vd.val_loc.loc_start.pos_cnum in
      List.mem at seen
      || (match Hashtbl.find_opt bodies at with Some body -> changes_nothing ~unit (at :: seen) body | None -> false)
    | Some home ->
      let name = Path.last path in
      Ident.persistent (Path.head path) && List.mem home ("Stdlib" :: plain)
      && not (List.mem name changing || contains "seq" name)
    | None -> false in
  let default = Tast_iterator.default_iterator in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (path, _, vd) -> if is_arrow e && not (known e path vd) then refuse ()
     | Texp_apply ({ exp_desc = Texp_ident (path, _, vd); _ } as f, _) -> if not (known f path vd) then refuse ()
     | Texp_apply ({ exp_desc = Texp_function _; _ }, _) -> ()
     | Texp_open ({ open_expr = { mod_desc = Tmod_ident _; _ }; _ }, _) -> ()
     | Texp_field _ | Texp_instvar _ -> if is_arrow e then refuse ()
     | Texp_apply _ | Texp_open _ | Texp_setfield _ | Texp_setinstvar _ | Texp_send _ | Texp_new _ | Texp_object _ | Texp_override _
     | Texp_letmodule _ | Texp_letop _ -> refuse ()
     | _ -> ());
    if !fine then default.expr self e in
  let pat (type k) self (p : k Typedtree.general_pattern) =
    (match p.pat_desc with Typedtree.Tpat_lazy _ -> refuse () | _ -> ());
    default.pat self p in
  let iterator = { default with expr; pat } in
  iterator.expr iterator e;
  !fine

(* Whether the cases of this expression compare a mutable place that one of their guards, or a lazy pattern, may change. *)
let changes_what_it_matches ~unit (e : Typedtree.expression) =
  let compares = ref false and runs = ref false and mutable_ = ref false in
  let default = Tast_iterator.default_iterator in
  let within flag f =
    let outer = !mutable_ in
    mutable_ := outer || flag;
    f ();
    mutable_ := outer in
  let pat (type k) self (p : k Typedtree.general_pattern) =
    match p.pat_desc with
    | Typedtree.Tpat_record (fields, _) ->
      List.iter (fun (_, (l : label_description), p) -> within (l.lbl_mut <> Immutable) (fun () -> self.Tast_iterator.pat self p)) fields
    | Tpat_array _ -> if !mutable_ then compares := true; within true (fun () -> default.pat self p)
    | Tpat_construct (_, c, _, _) ->
      if !mutable_ && c.cstr_consts + c.cstr_nonconsts <> 1 then compares := true;
      default.pat self p
    | Tpat_constant _ | Tpat_variant _ -> if !mutable_ then compares := true; default.pat self p
    | Tpat_lazy _ -> runs := true; default.pat self p
    | _ -> default.pat self p in
  let case (type k) self (c : k Typedtree.case) =
    self.Tast_iterator.pat self c.c_lhs;
    Option.iter (fun guard -> if not (changes_nothing ~unit [] guard) then runs := true) c.c_guard in
  let cases = { default with pat; case; expr = (fun _ _ -> ()) } in
  default.expr cases e;
  !compares && !runs

(* Whether a type mentions a type that may be another one than the compiler takes it for. *)
let mentions_sealed env t =
  let rec mentions depth t =
    let t = match Ctype.expand_head env t with t -> t | exception _ -> t in
    match Compiler.desc t with
    | Tconstr (Pident id, _, _) when List.exists (Ident.same id) !sealed -> true
    | _ when depth = 0 -> true
    | _ ->
      let found = ref false in
      Btype.iter_type_expr (fun t -> if mentions (depth - 1) t then found := true) t;
      !found in
  !sealed <> [] && mentions 12 t

(* Whether the type that a constructor belongs to is a GADT: a match may leave out others than the ones it names. *)
let is_of_gadt env (c : constructor_description) =
  c.cstr_generalized
  || match Compiler.desc c.cstr_res with
  | Tconstr (path, _, _) ->
    (match Env.find_type path env with
     | { type_kind = Type_variant (cs, _); _ } -> List.exists (fun (c : constructor_declaration) -> c.cd_res <> None) cs
     | _ | exception Not_found -> false)
  | _ -> false

let note_sealed (m : Typedtree.module_expr) signature =
  let rec seals (m : Typedtree.module_expr) =
    match m.mod_desc with
    | Tmod_ident _ | Tmod_structure _ | Tmod_functor _ -> false
    | Tmod_constraint (m, _, Tmodtype_implicit, _) -> seals m
    | _ -> true in
  let add = function
    | Sig_type (id, { type_manifest = None; _ }, _, _) -> sealed := id :: !sealed
    | _ -> () in
  if seals m then List.iter add signature

(* ---------------------------------------------------------------------------------------------------- as typed *)

(* [unit]: the answer's own compilation unit. *)
let as_typed ~unit structure =
  let found = ref [] in
  let add loc what = found := refusal what loc :: !found in
  let check loc = Option.iter (add loc) in
  let value env loc name (vd : value_description) path =
    match forbidden_value ~unit name vd, path with
    | Some what, _ -> add loc what
    | None, Path.Pdot (Pident id, _) when Ident.persistent id && Ident.name id = "Stdlib" -> ()
    | None, Path.Pdot (prefix, _) -> check loc (leads_to env prefix)
    | None, _ -> ()
  in
  let default = Tast_iterator.default_iterator in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (path, lid, vd) -> value e.exp_env lid.loc (Path.last path) vd path
     (* two packages of equal types are one to the compiler, whoever wrote the types *)
     | Texp_pack m -> check m.mod_loc (held ~unit m.mod_env m.mod_type)
     | Texp_open ({ open_expr; open_bound_items; _ }, _) -> note_sealed open_expr open_bound_items
     | _ -> ());
    if changes_what_it_matches ~unit e then
      found := refusal ~why:"a guard or lazy pattern that may change what the match compares is not allowed in an answer: bind the value first" "match" e.exp_loc :: !found;
    default.expr self e in
  let index env loc t =
    let t = match Ctype.expand_head env t with t -> t | exception _ -> t in
    let indices = match Compiler.desc t with Tconstr (_, arguments, _) -> arguments | _ -> [ t ] in
    if List.exists (mentions_sealed env) indices then
      found := refusal ~why:"a type that an included or opened module seals is not allowed as the index of a GADT in an answer" "gadt" loc :: !found in
  let pat (type k) self (p : k Typedtree.general_pattern) =
    (match p.pat_desc with
     | Typedtree.Tpat_construct (_, c, _, _) when !sealed <> [] && is_of_gadt p.pat_env c -> index p.pat_env p.pat_loc p.pat_type
     | _ -> ());
    default.pat self p in
  let case (type k) self (c : k Typedtree.case) =
    (match c.c_rhs.exp_desc with Texp_unreachable -> index c.c_lhs.pat_env c.c_lhs.pat_loc c.c_lhs.pat_type | _ -> ());
    default.case self c in
  let constructor (result : Typedtree.core_type option) = Option.iter (fun (t : Typedtree.core_type) -> index t.ctyp_env t.ctyp_loc t.ctyp_type) result in
  let type_kind self (k : Typedtree.type_kind) =
    (match k with Ttype_variant cs -> List.iter (fun (c : Typedtree.constructor_declaration) -> constructor c.cd_res) cs | _ -> ());
    default.type_kind self k in
  let structure_item self (i : Typedtree.structure_item) =
    (match i.str_desc with
     | Tstr_include { incl_mod; incl_type; _ } -> note_sealed incl_mod incl_type
     | Tstr_open { open_expr; open_bound_items; _ } -> note_sealed open_expr open_bound_items
     | _ -> ());
    default.structure_item self i in
  let binding_op self (b : Typedtree.binding_op) =
    check b.bop_loc (forbidden_value ~unit b.bop_op_name.txt b.bop_op_val);
    default.binding_op self b in
  let module_expr self (m : Typedtree.module_expr) =
    (match m.mod_desc with
     | Tmod_ident (path, lid) -> check lid.loc (leads_to m.mod_env path)
     | Tmod_constraint (inner, target, _, _) -> check m.mod_loc (laundered ~unit m.mod_env inner.mod_type target)
     | Tmod_apply (f, argument, _) ->
       (match scrape m.mod_env f.mod_type with
        | Mty_functor (Named (_, target), _) -> check argument.mod_loc (laundered ~unit m.mod_env argument.mod_type target)
        | _ -> ())
     | _ -> ());
    default.module_expr self m in
  (* no other construct gives a constructor a name, so where none is given another one, no two names are the same *)
  let extension_constructor self (c : Typedtree.extension_constructor) =
    (match c.ext_kind with
     | Text_decl _ -> List.iter (fun t -> constructor (Some t)) (Compiler.results c)
     | Text_rebind (path, _) when Path.last path <> Ident.name c.ext_id ->
       let why = Printf.sprintf "%s = %s is not allowed in an answer: a constructor under a second name" (Ident.name c.ext_id) (Path.last path) in
       found := refusal ~why "rebind" c.ext_loc :: !found
     | _ -> ());
    default.extension_constructor self c in
  let iterator = { default with expr; pat; case; type_kind; structure_item; binding_op; module_expr; extension_constructor } in
  note_bodies structure;
  iterator.structure iterator structure;
  List.rev !found

(* -------------------------------------------------------------------------------------------------- as written *)

open Parsetree

(* [external] is known by how it is written, in whatever does not type, too *)
let externals structure =
  let found = ref [] in
  let default = Ast_iterator.default_iterator in
  let value_description self (v : value_description) =
    if v.pval_prim <> [] then found := refusal "external" v.pval_loc :: !found;
    default.value_description self v in
  let iterator = { default with value_description } in
  iterator.structure iterator structure;
  List.rev !found

let rec parts = function
  | Longident.Lident name -> [ name ]
  | Ldot (inner, name) -> parts inner @ [ name ]
  | Lapply (a, b) -> parts a @ parts b

(* modules that the answer defines itself, under whatever name *)
let own_modules structure =
  let own = ref [] in
  let add (name : string option Location.loc) = Option.iter (fun n -> own := n :: !own) name.txt in
  let default = Ast_iterator.default_iterator in
  let module_binding self mb = add mb.pmb_name; default.module_binding self mb in
  let expr self e =
    (match e.pexp_desc with Pexp_letmodule (name, _, _) -> add name | _ -> ());
    default.expr self e in
  let module_expr self m =
    (match m.pmod_desc with Pmod_functor (Named (name, _), _) -> add name | _ -> ());
    default.module_expr self m in
  let pat self p =
    (match p.ppat_desc with Ppat_unpack name -> add name | _ -> ());
    default.pat self p in
  let iterator = { default with module_binding; expr; module_expr; pat } in
  iterator.structure iterator structure;
  !own

(* What an item that does not type would use: modules that are hidden from answers do not resolve, and their names are all
   that is left. Tells and forbids nothing that could be run: what does not type is not compiled. *)
let mentioned ~own item =
  let found = ref [] in
  let check (lid : Longident.t Location.loc) names =
    List.iter (fun name -> if forbidden_module name && not (List.mem name own) then found := refusal name lid.loc :: !found) names
  in
  let modules_of = function Longident.Ldot (inner, _) -> parts inner | _ -> [] in
  let default = Ast_iterator.default_iterator in
  let expr self e =
    (match e.pexp_desc with Pexp_ident lid -> check lid (modules_of lid.txt) | _ -> ());
    default.expr self e in
  let module_expr self m =
    (match m.pmod_desc with Pmod_ident lid -> check lid (parts lid.txt) | _ -> ());
    default.module_expr self m in
  let iterator = { default with expr; module_expr } in
  iterator.structure_item iterator item;
  List.rev !found

let diagnostic { why; loc; _ } =
  let line, column = Diagnostic.place loc in
  { Diagnostic.stage = "types"; code = Some "forbidden"; line; column; message = why }
