(* An answer that ends its process as soon as a function of it is called: what tests do before they call the answer, or
   without it, is their own doing. *)

open Parsetree

exception Impossible (* the signature has more than functions, types, exceptions and modules *)

(* the exit status of a process in which the answer was called; also in warm_path.py *)
let called = 113

let rec structure items = List.map item items

and item it =
  let loc = it.psig_loc in
  let desc =
    match it.psig_desc with
    | Psig_value { pval_name; pval_type = { ptyp_desc = Ptyp_arrow (label, _, _); _ } as t; _ } ->
      let exit = Ast_helper.Exp.ident ~loc (Location.mkloc (Longident.Ldot (Lident "Stdlib", "exit")) loc) in
      let body = Ast_helper.Exp.apply ~loc exit [ Nolabel, Ast_helper.Exp.constant ~loc (Ast_helper.Const.int called) ] in
      let body = Compiler.fun_ ~loc label None (Ast_helper.Pat.any ~loc ()) body in
      let binding = Ast_helper.Vb.mk ~loc (Ast_helper.Pat.var ~loc pval_name) (Ast_helper.Exp.constraint_ ~loc body t) in
      Pstr_value (Nonrecursive, [ binding ])
    | Psig_type (flag, declarations) -> Pstr_type (flag, declarations)
    | Psig_typext extension -> Pstr_typext extension
    | Psig_exception e -> Pstr_exception e
    | Psig_modtype m -> Pstr_modtype m
    | Psig_attribute a -> Pstr_attribute a
    | Psig_module { pmd_name; pmd_type; _ } -> Pstr_module (Ast_helper.Mb.mk ~loc pmd_name (module_ pmd_type))
    | _ -> raise Impossible
  in
  { pstr_desc = desc; pstr_loc = loc }

and module_ t =
  match t.pmty_desc with
  | Pmty_signature items -> Ast_helper.Mod.structure (structure items)
  | Pmty_functor (parameter, result) -> Ast_helper.Mod.functor_ parameter (module_ result)
  | _ -> raise Impossible
