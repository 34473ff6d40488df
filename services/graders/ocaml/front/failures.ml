(* Tests that assert nothing and fail by [failwith], by [exit] or by an exception of theirs: what decides whether they fail,
   written as asserts, so that it is accounted for. What a helper ends with is read in this way only where it gives nothing
   else than a unit, as functions of the tests may raise in their own right. *)

open Parsetree

module Names = Set.Make (String)

(* [exit] is the harness's by now. *)
let name e = match e.pexp_desc with Pexp_ident { txt = Lident n | Ldot (Lident _, n); _ } -> Some n | _ -> None

let is_number e = match e.pexp_desc with Pexp_constant _ -> true | _ -> false

let is_zero e =
  match e.pexp_desc with
  | Pexp_constant c -> (match Compiler.constant c with Pconst_integer ("0", None) -> true | _ -> false)
  | _ -> false

let raising = [ "failwith"; "invalid_arg" ]
let prints = [ "printf"; "eprintf"; "incr"; "decr"; ":="; "ignore" ]

(* names of exceptions that the tests expect somewhere *)
let expected items =
  let found = ref Names.empty in
  let pat self p =
    (match p.ppat_desc with Ppat_construct ({ txt = Lident n | Ldot (_, n); _ }, _) -> found := Names.add n !found | _ -> ());
    Ast_iterator.default_iterator.pat self p in
  let iterator = { Ast_iterator.default_iterator with pat } in
  iterator.structure iterator items;
  !found

let raised e =
  match e.pexp_desc with
  | Pexp_construct ({ txt = Lident n | Ldot (_, n); _ }, _) -> Some n
  | _ -> None

(* Whether an expression does nothing but fail. *)
let rec fails expected e =
  match e.pexp_desc with
  | Pexp_sequence (_, e) | Pexp_let (_, _, e) | Pexp_constraint (e, _) | Pexp_open (_, e) -> fails expected e
  | Pexp_apply (f, (_, first) :: others) ->
    (match name f, others with
     | Some ("raise" | "raise_notrace"), _ ->
       (match raised first with Some n -> n = "Failure" || not (Names.mem n expected) | None -> false)
     | Some "exit", _ -> is_number first && not (is_zero first)
     | Some "@@", [ _, argument ] ->
       let call = { e with pexp_desc = Pexp_apply (first, [ Nolabel, argument ]) } in
       fails expected call
     | Some ("ksprintf" | "kasprintf"), _ -> Option.fold ~none:false ~some:(fun n -> List.mem n raising) (name first)
     | Some n, _ -> List.mem n raising
     | None, _ -> false)
  | _ -> false

(* Whether an expression is of type unit, as far as its form tells. *)
let rec is_unit e =
  match e.pexp_desc with
  | Pexp_construct ({ txt = Lident "()"; _ }, None) | Pexp_setfield _ | Pexp_for _ | Pexp_while _ | Pexp_ifthenelse (_, _, None) -> true
  | Pexp_sequence (_, e) | Pexp_let (_, _, e) | Pexp_open (_, e) -> is_unit e
  | Pexp_ifthenelse (_, a, Some b) -> is_unit a || is_unit b
  | Pexp_match (_, cases) | Pexp_try (_, cases) -> List.exists (fun c -> is_unit c.pc_rhs) cases
  | Pexp_apply (f, _) ->
    let starts word n = String.length n >= String.length word && String.sub n 0 (String.length word) = word in
    Option.fold ~none:false ~some:(fun n -> List.mem n prints || starts "print_" n || starts "prerr_" n) (name f)
  | _ -> false

let negated c =
  let call f arguments = { c with pexp_desc = Pexp_apply (f, arguments) } in
  let named n = Ast_helper.Exp.ident ~loc:c.pexp_loc (Location.mkloc (Longident.Lident n) c.pexp_loc) in
  match c.pexp_desc with
  | Pexp_apply (f, [ _, inner ]) when name f = Some "not" -> inner
  | Pexp_apply (f, arguments) when name f = Some "<>" -> call (named "=") arguments
  | _ -> call (named "not") [ Nolabel, c ]

let assert_ condition = Ast_helper.Exp.assert_ ~loc:condition.pexp_loc condition

let no_failure loc = Ast_helper.Exp.assert_ ~loc (Ast_helper.Exp.construct ~loc (Location.mkloc (Longident.Lident "false") loc) None)

let is_unit_pattern p = match p.ppat_desc with Ppat_construct ({ txt = Lident "()"; _ }, None) -> true | _ -> false
let is_unit_type t = match t.ptyp_desc with Ptyp_constr ({ txt = Lident "unit"; _ }, []) -> true | _ -> false

let as_asserts ~is_discard items =
  let fails = fails (expected items) in
  let first a b = Ast_helper.Exp.sequence ~loc:a.pexp_loc a b in
  let default = Ast_mapper.default_mapper in
  (* [sure]: the expression is of type unit *)
  let rec checked self ~sure e =
    let inside desc = { e with pexp_desc = desc } in
    let sure = sure || is_unit e in
    let plain = self.Ast_mapper.expr self in
    match e.pexp_desc with
    | Pexp_ifthenelse (c, a, None) when fails a -> assert_ (negated (plain c))
    | Pexp_ifthenelse (c, a, Some b) when sure && fails a -> first (assert_ (negated (plain c))) (checked self ~sure b)
    | Pexp_ifthenelse (c, a, Some b) when sure && fails b -> first (assert_ (plain c)) (checked self ~sure a)
    | Pexp_ifthenelse (c, a, b) -> inside (Pexp_ifthenelse (plain c, checked self ~sure a, Option.map (checked self ~sure) b))
    | Pexp_match (x, cases) -> inside (Pexp_match (plain x, List.map (case self ~sure) cases))
    | Pexp_try (x, cases) -> inside (Pexp_try (checked self ~sure x, List.map (case self ~sure) cases))
    | Pexp_sequence (a, b) -> inside (Pexp_sequence ((if sure then checked self ~sure a else plain a), checked self ~sure b))
    | Pexp_let (flag, bindings, body) -> inside (Pexp_let (flag, List.map (binding self) bindings, checked self ~sure body))
    | Pexp_open (what, body) -> inside (Pexp_open (what, checked self ~sure body))
    | Pexp_letmodule (n, m, body) -> inside (Pexp_letmodule (n, self.module_expr self m, checked self ~sure body))
    | Pexp_letexception (x, body) -> inside (Pexp_letexception (x, checked self ~sure body))
    | Pexp_constraint (body, t) -> inside (Pexp_constraint (checked self ~sure:(sure || is_unit_type t) body, t))
    | Pexp_for (p, from, till, way, body) -> inside (Pexp_for (p, plain from, plain till, way, checked self ~sure:true body))
    | Pexp_while (c, body) -> inside (Pexp_while (plain c, checked self ~sure:true body))
    | Pexp_apply (f, [ _, status ]) when sure && name f = Some "exit" && not (is_number status) ->
      let zero = Ast_helper.Exp.constant ~loc:e.pexp_loc (Ast_helper.Const.int 0) in
      let equal = Ast_helper.Exp.ident ~loc:e.pexp_loc (Location.mkloc (Longident.Lident "=") e.pexp_loc) in
      assert_ (Ast_helper.Exp.apply ~loc:e.pexp_loc equal [ Nolabel, plain status; Nolabel, zero ])
    | _ -> if sure && fails e then no_failure e.pexp_loc else plain e
  and case self ~sure c =
    { c with pc_guard = Option.map (self.Ast_mapper.expr self) c.pc_guard; pc_rhs = checked self ~sure c.pc_rhs }
  and binding self b =
    if is_discard b.pvb_pat then { b with pvb_expr = checked self ~sure:true b.pvb_expr } else self.Ast_mapper.value_binding self b
  in
  let expr self e =
    match Compiler.parameter e, Compiler.cases_of e with
    | Some (label, value, p, body), _ ->
      let body = checked self ~sure:(is_unit_pattern p) body in
      { e with pexp_desc = (Compiler.fun_ ~loc:e.pexp_loc label value p body).pexp_desc }
    | None, Some cases ->
      let sure = List.exists (fun c -> is_unit c.pc_rhs) cases in
      Compiler.function_of e (List.map (case self ~sure) cases)
    | None, None -> default.expr self e in
  let structure_item self it =
    match it.pstr_desc with
    | Pstr_eval (e, attributes) -> { it with pstr_desc = Pstr_eval (checked self ~sure:true e, attributes) }
    | Pstr_value (flag, bindings) -> { it with pstr_desc = Pstr_value (flag, List.map (binding self) bindings) }
    | _ -> default.structure_item self it in
  let mapper = { default with expr; structure_item } in
  mapper.structure mapper items
