(* What answers may not use: whatever steps outside the language, because with it, what the tests see is what the answer
   wants them to see. Found in the compiler's own trees, never by searching text. The list and its reasons:
     external                    calls any C function, [Obj.magic] and the process's exit included
     Obj, Marshal, input_value   forge values of any type
     Callback                    replaces functions that the runtime calls without checking their type
     Weak, Ephemeron             see values while they die
     Lexing.engine, Parsing      run tables in C that trust whoever made them
     Domain                      runs beside the tests; the library's own unchecked accesses count on nobody doing so
     Camlinternal*               the untyped inside of objects, formats, lazy values and recursive modules
     *unsafe*                    the library's access without bounds, and bytes shared with strings; names of the answer's
                                 own may contain it, but not in a signature, which could give the library's a new home
     Gradus_*                    the harness *)

open Parsetree

type refusal = { what : string; loc : Location.t }

let starts prefix s = String.length s >= String.length prefix && String.sub s 0 (String.length prefix) = prefix

let contains part s =
  let n = String.length part in
  let rec go i = i + n <= String.length s && (String.sub s i n = part || go (i + 1)) in
  go 0

let modules =
  [ "Obj"; "Marshal"; "Callback"; "Weak"; "Ephemeron"; "Parsing"; "Dynlink"; "OUnit2" ]
  @ if Compiler.version >= 500 then [ "Domain" ] else []

let values = [ "input_value"; "from_channel"; "engine"; "new_engine" ]

let forbidden_module name =
  List.mem name modules || starts "Camlinternal" name || starts "CamlinternaL" name || starts "Gradus_" name
  || List.exists (fun m -> name = "Stdlib__" ^ m) modules

(* ------------------------------------------------------------------------------------------------- as written *)

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

(* values that the answer defines itself: whether one that is used is of them, only its type tells *)
let own_values structure =
  let own = ref [] in
  let default = Ast_iterator.default_iterator in
  let pat self p =
    (match p.ppat_desc with Ppat_var name | Ppat_alias (_, name) -> own := name.txt :: !own | _ -> ());
    default.pat self p in
  let iterator = { default with pat } in
  iterator.structure iterator structure;
  !own

let as_written structure =
  let found = ref [] in
  let own = own_modules structure in
  let own_values = own_values structure in
  let add loc what = found := { what; loc } :: !found in
  let check_modules (lid : Longident.t Location.loc) =
    List.iter (fun name -> if forbidden_module name && not (List.mem name own) then add lid.loc name) (parts lid.txt)
  in
  let check_value (lid : Longident.t Location.loc) =
    check_modules lid;
    let name = Longident.last lid.txt in
    if contains "unsafe" name && not (List.mem name own_values) then add lid.loc name
  in
  let default = Ast_iterator.default_iterator in
  let structure_item self item =
    (match item.pstr_desc with Pstr_primitive _ -> add item.pstr_loc "external" | _ -> ());
    default.structure_item self item in
  let signature_item self item =
    (match item.psig_desc with
     | Psig_value { pval_prim = _ :: _; _ } -> add item.psig_loc "external"
     | Psig_value { pval_name; _ } when contains "unsafe" pval_name.txt -> add pval_name.loc pval_name.txt
     | _ -> ());
    default.signature_item self item in
  let expr self e =
    (match e.pexp_desc with Pexp_ident lid -> check_value lid | _ -> ());
    default.expr self e in
  let module_expr self m =
    (match m.pmod_desc with Pmod_ident lid -> check_modules lid | _ -> ());
    default.module_expr self m in
  let iterator = { default with structure_item; signature_item; expr; module_expr } in
  iterator.structure iterator structure;
  List.rev !found

(* ---------------------------------------------------------------------------------------------------- as typed *)

let from_file (vd : Types.value_description) =
  Filename.remove_extension (Filename.basename vd.val_loc.loc_start.pos_fname)

(* whatever name it goes by, a value remembers where it was declared and which primitive it is *)
let reaches ~file (vd : Types.value_description) name =
  let primitive = match vd.val_kind with Types.Val_prim p -> p.Primitive.prim_name | _ -> "" in
  let home = String.capitalize_ascii (from_file vd) in
  let own = vd.val_loc.loc_start.pos_fname = file in
  if (contains "unsafe" name && not own) || contains "unsafe" primitive then Some name
  else if contains "%obj_" primitive || primitive = "%bytes_to_string" || primitive = "%bytes_of_string" then Some name
  else if primitive = "caml_input_value" || primitive = "caml_register_named_value" then Some name
  else if forbidden_module home then Some home
  else if List.mem name values && List.mem home [ "Stdlib"; "Marshal"; "Lexing" ] then Some name
  else None

(* [file]: where the answer's own names are from; the library's are from interfaces, so none is from there *)
let as_typed ~file structure =
  let found = ref [] in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (path, lid, vd) ->
       (match reaches ~file vd (Path.last path) with Some what -> found := { what; loc = lid.loc } :: !found | None -> ())
     | _ -> ());
    Tast_iterator.default_iterator.expr self e in
  let iterator = { Tast_iterator.default_iterator with expr } in
  iterator.structure iterator structure;
  List.rev !found

let diagnostic { what; loc } =
  let line, column = Diagnostic.place loc in
  { Diagnostic.stage = "types"; code = Some "forbidden"; line; column; message = what ^ " is not allowed in an answer" }
