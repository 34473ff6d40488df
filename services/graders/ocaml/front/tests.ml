(* Rewrites a task's tests so that each is counted and reported by the harness, and so that the answer can lend them
   names but not take any away. Knows nothing of how an answer is judged outside. *)

open Parsetree

exception Broken of string

let loc = Location.none
let lid name = Location.mkloc name loc
let ident path = Ast_helper.Exp.ident ~loc (lid path)
let thunk body = Compiler.fun_ ~loc Nolabel None (Ast_helper.Pat.any ~loc ()) body

let apply harness name arguments =
  let f = ident (Longident.Ldot (Lident harness, name)) in
  Ast_helper.Exp.apply ~loc f (List.map (fun a -> Asttypes.Nolabel, a) arguments)

(* -------------------------------------------------------------------------------------------- counting asserts *)

module Names = Set.Make (String)

let asserts names e =
  let found = ref false in
  let expr self e =
    match e.pexp_desc with
    | Pexp_assert _ -> found := true
    | Pexp_ident { txt = Lident name | Ldot (_, name); _ } when Names.mem name names -> found := true
    | _ -> Ast_iterator.default_iterator.expr self e
  in
  let iterator = { Ast_iterator.default_iterator with expr } in
  iterator.expr iterator e;
  !found

let is_false_assert e =
  match e.pexp_desc with Pexp_assert { pexp_desc = Pexp_construct ({ txt = Lident "false"; _ }, None); _ } -> true | _ -> false

let suite_asserts = [ "assert_equal"; "assert_bool"; "assert_raises"; "assert_string"; "@?" ]

let libraries = [ "List"; "Array"; "String"; "Bytes"; "Char"; "Int"; "Float"; "Option"; "Hashtbl"; "Sys" ]

(* Whether a condition is about these names alone, parameters of a function of the tests: no answer decides it. *)
let is_about parameters condition =
  let sure = ref true in
  let is_word name = name <> "" && (name.[0] = '_' || Char.lowercase_ascii name.[0] <> Char.uppercase_ascii name.[0]) in
  let expr self e =
    (match e.pexp_desc with
     | Pexp_ident { txt = Lident name; _ } -> if is_word name && name <> "not" && not (Names.mem name parameters) then sure := false
     | Pexp_ident { txt = Ldot (Lident library, _); _ } -> if not (List.mem library libraries) then sure := false
     | Pexp_ident _ -> sure := false
     | _ -> ());
    Ast_iterator.default_iterator.expr self e
  in
  let iterator = { Ast_iterator.default_iterator with expr } in
  iterator.expr iterator condition;
  !sure

(* Whether [e] asserts more than [false]: what it asserts has to be evaluated for the test to pass. Where what the tests pass
   to a function of theirs decides, both sides have to assert. *)
let rec needs_site ?(given = Names.empty) names e =
  let name p = match p.ppat_desc with Ppat_var { txt; _ } | Ppat_constraint ({ ppat_desc = Ppat_var { txt; _ }; _ }, _) -> Some txt | _ -> None in
  let parameters, body = Split.parameters e in
  let given = List.fold_left (fun all (_, p) -> Option.fold ~none:all ~some:(fun n -> Names.add n all) (name p)) given parameters in
  let found = ref false in
  let expr self e =
    match e.pexp_desc with
    | Pexp_ifthenelse (condition, a, b) when is_about given condition ->
      let needs = needs_site ~given names in
      if needs a && Option.fold ~none:false ~some:needs b then found := true
    | Pexp_assert _ when not (is_false_assert e) -> found := true
    | Pexp_ident { txt = Lident name | Ldot (_, name); _ } when Names.mem name names -> found := true
    | _ -> Ast_iterator.default_iterator.expr self e
  in
  let iterator = { Ast_iterator.default_iterator with expr } in
  iterator.expr iterator body;
  !found

let rec is_discard p =
  match p.ppat_desc with
  | Ppat_any | Ppat_construct ({ txt = Lident "()"; _ }, None) -> true
  | Ppat_constraint (inner, _) -> is_discard inner
  | _ -> false

(* [assert ...], or something that ends so: a test even where it is given a name *)
let rec ends_in_assert e =
  match e.pexp_desc with
  | Pexp_assert _ -> true
  | Pexp_sequence (_, e) | Pexp_let (_, _, e) | Pexp_open (_, e) | Pexp_letmodule (_, _, e) | Pexp_letexception (_, e)
  | Pexp_constraint (e, _) -> ends_in_assert e
  | _ -> false

let bound_name p =
  match p.ppat_desc with
  | Ppat_var name | Ppat_constraint ({ ppat_desc = Ppat_var name; _ }, _) -> Some name.txt
  | _ -> None

(* names of functions that assert something when they are called *)
let asserting names bindings =
  let is_helper names b = asserts names b.pvb_expr && not (ends_in_assert b.pvb_expr) in
  List.fold_left
    (fun names b -> match bound_name b.pvb_pat with Some name when is_helper names b -> Names.add name names | _ -> names)
    names bindings

(* names that [needs_site], in the order in which they are written *)
let needing ~suite items =
  let names = ref (if suite then Names.of_list suite_asserts else Names.empty) in
  let value_binding self b =
    Ast_iterator.default_iterator.value_binding self b;
    match bound_name b.pvb_pat with
    | Some name when needs_site !names b.pvb_expr -> names := Names.add name !names
    | _ -> () in
  let iterator = { Ast_iterator.default_iterator with value_binding } in
  iterator.structure iterator items;
  !names

(* the body of [fun () -> body] *)
let rec unit_body e =
  match e.pexp_desc, Compiler.parameter e with
  | Pexp_constraint (e, _), _ -> unit_body e
  | _, Some (Nolabel, None, p, body) when is_discard p -> Some body
  | _ -> None

(* [f] in the statement [f ()] *)
let unit_call e =
  match e.pexp_desc with
  | Pexp_apply
      ({ pexp_desc = Pexp_ident { txt = Lident name; _ }; _ },
       [ (Nolabel, { pexp_desc = Pexp_construct ({ txt = Lident "()"; _ }, None); _ }) ]) -> Some name
  | _ -> None

type walk = {
  harness : string;
  marks : Split.marks;
  pure : bool;
  needing : Names.t;
  applied : string -> bool; (* a module, somewhere in the tests *)
  mutable total : int;
  mutable steps : int;
  mutable pairs : (int * bool) list; (* tests that have a twin, the latest first, and whether the two changed numbers *)
  mutable suites : Names.t;
}
(* suites: functions [let f () = ...] that are called as statements, whose own statements are the tests *)

let number n = Ast_helper.Exp.constant ~loc (Ast_helper.Const.int n)

let counted w e =
  let id = w.total and values = List.length w.marks.values in
  w.total <- id + 1;
  let name = if needs_site w.needing e then "check" else "check_any" in
  let check id e = apply w.harness name [ number id; thunk e ] in
  let marked = Split.mark w.marks id e in
  match if w.pure && List.length w.marks.values = values then Split.twin w.marks e else None with
  | None -> check id marked
  | Some twin ->
    let changed = Random.bool () and other = Gradus_value.first_twin + List.length w.pairs in
    w.pairs <- (id, changed) :: w.pairs;
    let first, second = if changed then other, id else id, other in
    let test = check first marked and twin = check second twin in
    if Random.bool () then Ast_helper.Exp.sequence ~loc test twin else Ast_helper.Exp.sequence ~loc twin test

(* Tests that fail, mixed among the others when they run (harness/gradus_referee.ml), and their random numbers. They share
   one [assert]: each place that names something else costs the runner more than to run what is there. *)
let decoys harness ~total =
  let fails = "gradus_fails" in
  let var name = ident (Longident.Lident name) in
  let call f arguments = Ast_helper.Exp.apply ~loc f (List.map (fun a -> Asttypes.Nolabel, a) arguments) in
  let parameter name body = Compiler.fun_ ~loc Nolabel None (Ast_helper.Pat.var ~loc (lid name)) body in
  let equal = call (ident (Ldot (Lident "Stdlib", "="))) [ apply harness "same" [ var "a" ]; var "b" ] in
  let failing = parameter "a" (parameter "b" (Ast_helper.Exp.assert_ ~loc equal)) in
  let decoy _ =
    let hex () = Printf.sprintf "%06x" (Random.bits () land 0xffffff) in
    let name = hex () ^ hex () and n = Random.bits () in
    let body = call (var fails) [ number n; number (n + 1 + Random.int 9) ] in
    name, Ast_helper.Exp.tuple ~loc [ Ast_helper.Exp.constant ~loc (Ast_helper.Const.string name); thunk body ] in
  let names, bodies = List.split (List.init (Gradus_referee.decoys total) decoy) in
  let binding = Ast_helper.Vb.mk ~loc (Ast_helper.Pat.var ~loc (lid fails)) failing in
  let bodies = Ast_helper.Exp.let_ ~loc Nonrecursive [ binding ] (Ast_helper.Exp.array ~loc bodies) in
  String.concat "" names, Ast_helper.Str.eval ~loc (apply harness "pool" [ bodies ])

(* around tests: what ends them early leaves them without a result *)
let guarded w e = apply w.harness "guard" [ thunk e ]

(* no test by itself, but not to be overlooked when it raises: checks are written with [failwith], too *)
let step w e =
  let id = w.steps in
  w.steps <- id + 1;
  apply w.harness "step" [ number id; thunk e ]

(* A sequence is split into its statements; a statement that asserts is one test, whatever is inside it: only as a
   whole is it sure to be meant to run. *)
let rec statement w names e =
  let inside desc = { e with pexp_desc = desc } in
  match e.pexp_desc with
  | Pexp_sequence (a, b) -> inside (Pexp_sequence (statement w names a, statement w names b))
  | Pexp_let (flag, bindings, body) when asserts (asserting names bindings) body ->
    let discard b = if is_discard b.pvb_pat && asserts names b.pvb_expr
      then { b with pvb_expr = statement w names (Compiler.bound_expression b) } else b in
    inside (Pexp_let (flag, List.map discard bindings, statement w (asserting names bindings) body))
  | Pexp_open (what, body) -> inside (Pexp_open (what, statement w names body))
  | Pexp_letmodule (name, m, body) -> inside (Pexp_letmodule (name, m, statement w names body))
  | Pexp_letexception (x, body) -> inside (Pexp_letexception (x, statement w names body))
  | _ ->
    match unit_call e with
    | Some name when Names.mem name w.suites -> guarded w e
    | _ -> if asserts names e then counted w e else step w e

(* which functions are called as statements [f ()] *)
let rec calls e =
  match e.pexp_desc with
  | Pexp_sequence (a, b) -> Names.union (calls a) (calls b)
  | Pexp_let (_, _, body) | Pexp_open (_, body) | Pexp_letmodule (_, _, body) | Pexp_letexception (_, body) ->
    calls body
  | _ -> (match unit_call e with Some name -> Names.singleton name | None -> Names.empty)

(* what is written out of a module, inside of functors and signatures *)
let rec structure_of m =
  match m.pmod_desc with
  | Pmod_structure inner -> Some inner
  | Pmod_functor (_, m) | Pmod_constraint (m, _) -> structure_of m
  | _ -> None

let rec with_structure m inner =
  let desc = match m.pmod_desc with
    | Pmod_functor (p, m) -> Pmod_functor (p, with_structure m inner)
    | Pmod_constraint (m, t) -> Pmod_constraint (with_structure m inner, t)
    | _ -> Pmod_structure inner in
  { m with pmod_desc = desc }

let is_functor m = match m.pmod_desc with Pmod_functor _ -> true | _ -> false

(* the module that an item is or has inside *)
let module_of item =
  match item.pstr_desc with
  | Pstr_module { pmb_expr = m; _ } | Pstr_include { pincl_mod = m; _ } | Pstr_open { popen_expr = m; _ } -> Some m
  | _ -> None

let rec calls_of_item item =
  match item.pstr_desc with
  | Pstr_eval (e, _) -> calls e
  | Pstr_value (_, bindings) ->
    let call b =
      if is_discard b.pvb_pat || ends_in_assert b.pvb_expr then calls (Compiler.bound_expression b)
      else Option.fold ~none:Names.empty ~some:calls (unit_body b.pvb_expr)
    in
    List.fold_left (fun all b -> Names.union all (call b)) Names.empty bindings
  | _ -> Option.fold ~none:Names.empty ~some:calls_of (Option.bind (module_of item) structure_of)

and calls_of structure = List.fold_left (fun all item -> Names.union all (calls_of_item item)) Names.empty structure

let rec replace_body e body =
  match e.pexp_desc, Compiler.parameter e with
  | Pexp_constraint (inner, t), _ -> { e with pexp_desc = Pexp_constraint (replace_body inner body, t) }
  | _, Some (label, default, p, _) -> { e with pexp_desc = (Compiler.fun_ ~loc label default p body).pexp_desc }
  | _ -> e

let binding w names called b =
  let b = Split.helper w.marks b in
  if is_discard b.pvb_pat then
    let unit_ = Ast_helper.Pat.any ~loc () in
    Compiler.rebound b unit_ (guarded w (statement w names (Compiler.bound_expression b)))
  else if ends_in_assert b.pvb_expr then { b with pvb_expr = guarded w (statement w names (Compiler.bound_expression b)) }
  else
    match bound_name b.pvb_pat, unit_body b.pvb_expr with
    | Some name, Some body when Names.mem name called && asserts names body ->
      w.suites <- Names.add name w.suites;
      { b with pvb_expr = replace_body b.pvb_expr (statement w names body) }
    | _ -> b

let rec item w called (names, items) it =
  let add names desc = names, { it with pstr_desc = desc } :: items in
  match it.pstr_desc with
  | Pstr_eval (e, attributes) -> add names (Pstr_eval (guarded w (statement w names e), attributes))
  | Pstr_value (flag, bindings) ->
    add (asserting names bindings) (Pstr_value (flag, List.map (binding w names called) bindings))
  | Pstr_module { pmb_name = { txt = Some name; _ }; pmb_expr; _ } when is_functor pmb_expr && not (w.applied name) ->
    names, it :: items
  | desc ->
    let inside m = Option.map (fun inner -> let names, inner = structure w called names inner in names, with_structure m inner) (structure_of m) in
    match Option.bind (module_of it) inside, desc with
    | Some (names, m), Pstr_module mb -> add names (Pstr_module { mb with pmb_expr = m })
    | Some (names, m), Pstr_include i -> add names (Pstr_include { i with pincl_mod = m })
    | Some (names, m), Pstr_open o -> add names (Pstr_open { o with popen_expr = m })
    | _ -> names, it :: items

and structure w called names items =
  let names, items = List.fold_left (item w called) (names, []) items in
  names, List.rev items

let is_pure items =
  List.exists (fun it -> match it.pstr_desc with Pstr_attribute { attr_name; _ } -> attr_name.txt = "gradus.pure" | _ -> false) items

(* [assert] with the harness's account of it, which is not for functions that do nothing but fail. Where the tests
   expect that a condition raises, as in [try assert c; assert false with Exit -> ()], it may. [watched]: names of asserting
   functions; then functions [fun () -> ...] that assert are watched. *)
let instrumented ?watched harness items =
  let call name arguments = apply harness name (if arguments = [] then [ Ast_helper.Exp.construct ~loc (lid (Longident.Lident "()")) None ] else arguments) in
  let expected = ref false in
  let default = Ast_mapper.default_mapper in
  let first a b = Ast_helper.Exp.sequence ~loc a b in
  let specific c = match c.pc_lhs.ppat_desc with Ppat_any | Ppat_var _ -> false | _ -> true in
  let rec fails e =
    match e.pexp_desc with
    | Pexp_sequence (_, e) | Pexp_let (_, _, e) -> fails e
    | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident ("failwith" | "raise" | "invalid_arg"); _ }; _ }, _) -> true
    | _ -> is_false_assert e in
  let rec only_fails e = match Compiler.parameter e with Some (_, _, _, body) -> is_false_assert body || only_fails body | None -> false in
  let expr self e =
    match e.pexp_desc with
    | Pexp_assert _ when is_false_assert e -> first (call "fail" []) e
    | Pexp_assert c ->
      let c = self.Ast_mapper.expr self c in
      let before, after = if !expected then "try_", "judge" else "enter", "leave" in
      { e with pexp_desc = Pexp_assert (first (call before []) (call after [ c ])) }
    | Pexp_try (body, cases) when List.for_all specific cases && fails body ->
      let outer = !expected in
      expected := true;
      let body = self.expr self body in
      expected := outer;
      { e with pexp_desc = Pexp_try (body, self.cases self cases) }
    | _ when only_fails e -> e
    | _ ->
      match unit_body e, Compiler.parameter e with
      | Some body, Some (_, _, { ppat_desc = Ppat_construct _; _ }, _) when Option.fold ~none:false ~some:(fun names -> needs_site names body) watched ->
        replace_body e (apply harness "watch" [ thunk (self.Ast_mapper.expr self body) ])
      | _ -> default.expr self e in
  let mapper = { default with expr } in
  mapper.structure mapper items

let mentioned_by items =
  let found = ref Names.empty in
  let expr self e =
    (match e.pexp_desc with Pexp_ident { txt = Lident n | Ldot (_, n); _ } -> found := Names.add n !found | _ -> ());
    Ast_iterator.default_iterator.expr self e in
  let module_expr self m =
    (match m.pmod_desc with Pmod_ident { txt = Lident n | Ldot (_, n); _ } -> found := Names.add n !found | _ -> ());
    Ast_iterator.default_iterator.module_expr self m in
  let iterator = { Ast_iterator.default_iterator with expr; module_expr } in
  iterator.structure iterator items;
  !found

(* names that are mentioned where a condition decides *)
let mentioned_under_conditions items =
  let found = ref Names.empty and conditions = ref 0 in
  let expr self e =
    let decides = match e.pexp_desc with Pexp_ifthenelse _ | Pexp_match _ | Pexp_try _ -> 1 | _ -> 0 in
    (match e.pexp_desc with Pexp_ident { txt = Lident n; _ } when !conditions > 0 -> found := Names.add n !found | _ -> ());
    conditions := !conditions + decides;
    Ast_iterator.default_iterator.expr self e;
    conditions := !conditions - decides in
  let iterator = { Ast_iterator.default_iterator with expr } in
  iterator.structure iterator items;
  !found

(* Calls of the functions [let f () = assert ...] that the tests do not use: they are tests as well, beside others. *)
let forgotten needing items =
  let used = mentioned_by items in
  let name b = match bound_name b.pvb_pat, unit_body b.pvb_expr with
    | Some name, Some body when needs_site needing body && not (Names.mem name used) -> Some name
    | _ -> None in
  let names it = match it.pstr_desc with Pstr_value (_, [ b ]) -> Option.to_list (name b) | _ -> [] in
  let call name =
    let unit_ = Ast_helper.Exp.construct ~loc (lid (Longident.Lident "()")) None in
    let call = Ast_helper.Exp.apply ~loc (ident (Longident.Lident name)) [ Asttypes.Nolabel, unit_ ] in
    Ast_helper.Str.value ~loc Nonrecursive [ Ast_helper.Vb.mk ~loc (Ast_helper.Pat.any ~loc ()) call ] in
  List.map call (List.concat_map names items)

let has_asserts items =
  let found = ref false in
  let expr self e =
    (match e.pexp_desc with Pexp_assert _ -> found := true | _ -> ());
    Ast_iterator.default_iterator.expr self e in
  let iterator = { Ast_iterator.default_iterator with expr } in
  iterator.structure iterator items;
  !found

let count_asserts harness marks items =
  let items = if has_asserts items then items else Failures.as_asserts ~is_discard items in
  let needing = needing ~suite:false items in
  let used = mentioned_by items in
  let walk items =
    let w =
      { harness; marks; pure = marks.Split.whole && is_pure items; needing; applied = (fun name -> Names.mem name used); total = 0; steps = 0;
        pairs = []; suites = Names.empty } in
    let _, items = structure w (calls_of items) Names.empty items in
    if w.total = 0 then raise (Broken "the tests assert nothing");
    instrumented ~watched:needing harness items, w.total, w.steps, List.rev w.pairs in
  match forgotten needing items with
  | [] -> walk items
  | calls ->
    let is_forgotten it = forgotten needing [ it ] <> [] in
    if List.exists (fun it -> not (is_forgotten it) && needs_site needing (Ast_helper.Exp.letmodule ~loc (Location.mkloc None loc) (Ast_helper.Mod.structure [ it ]) (number 0))) items
    then walk (items @ calls) else walk items

(* ------------------------------------------------------------------------------------------------ OUnit2 cases *)

(* [name >:: f x] becomes [name >:: fun c -> f x c]: what the answer raises belongs to its own case, not to the suite. *)
let delay_cases harness (marks : Split.marks) ~of_answer items =
  let cases = ref 0 and reached = ref 0 in
  let needing = needing ~suite:true items and used = mentioned_by items in
  let doubtful = mentioned_under_conditions items in
  let is_doubtful name = Names.mem name doubtful || not (Names.mem name used) in
  (* inside of what may leave a case out of the suite, of what an answer decides *)
  let uncertain = ref 0 and asked = ref false in
  let context = "gradus_context" in
  let delayed f =
    let pass = ident (Longident.Lident context) in
    Compiler.fun_ ~loc Nolabel None (Ast_helper.Pat.var ~loc (lid context))
      (Ast_helper.Exp.apply ~loc f [ Nolabel, pass ])
  in
  let op_is name op = Split.ident_of op = Some (Longident.Lident name) in
  let value_binding self b = Split.helper marks (Ast_mapper.default_mapper.value_binding self b) in
  let default = Ast_mapper.default_mapper in
  let without self e =
    incr uncertain;
    let e = default.expr self e in
    decr uncertain;
    e in
  let inside self e =
    match e.pexp_desc with
    | Pexp_ifthenelse _ | Pexp_match _ | Pexp_try _ -> without self e
    | Pexp_apply (f, arguments) when List.exists (fun (_, a) -> Compiler.is_function a) arguments && List.exists (fun (_, a) -> not (Compiler.is_function a) && of_answer a) arguments ->
      let outer = !asked in
      asked := true;
      let e = default.expr self e in
      asked := outer;
      e
    | _ -> default.expr self e in
  let needed f =
    let context = Ast_helper.Exp.apply ~loc f [ Nolabel, ident (Longident.Lident context) ] in
    let unit_ = Ast_helper.Exp.construct ~loc (lid (Longident.Lident "()")) None in
    Compiler.fun_ ~loc Nolabel None (Ast_helper.Pat.var ~loc (lid "gradus_context"))
      (Ast_helper.Exp.sequence ~loc (apply harness "need_site" [ unit_ ]) context) in
  let reach e = if !asked then (incr reached; apply harness "reach" [ number (!reached - 1); e ]) else e in
  let expr self e =
    let e = inside self e in
    match e.pexp_desc with
    | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident (">::" | ">:"); _ }; _ } as op), [ name; label, f ]) ->
      let case = !cases in
      incr cases;
      let f = if op_is ">::" op && !uncertain = 0 then Split.mark_case marks case f else f in
      let f = if op_is ">::" op && needs_site needing f then needed f else f in
      reach @@
      let e = { e with pexp_desc = Pexp_apply (op, [ name; label, f ]) } in
      (match op.pexp_desc with
       | Pexp_ident { txt = Lident ">:"; _ } -> e
       | _ when Compiler.is_function f -> e
       | _ -> { e with pexp_desc = Pexp_apply (op, [ name; label, delayed f ]) })
    | _ -> e
  in
  let structure_item self it =
    match it.pstr_desc with
    | Pstr_value (_, [ { pvb_pat; _ } ]) when Option.fold ~none:false ~some:is_doubtful (bound_name pvb_pat) ->
      incr uncertain;
      let it = default.structure_item self it in
      decr uncertain;
      it
    | _ -> default.structure_item self it in
  let mapper = { default with expr; value_binding; structure_item } in
  let items = instrumented harness (mapper.structure mapper items) in
  items, max 1 !cases, !reached, []

(* ------------------------------------------------------------------------------------- what tests see of the answer *)

let rec root = function
  | Longident.Lident name -> name
  | Ldot (inner, _) | Lapply (inner, _) -> root inner

(* the first names of all paths that the tests write *)
let module_roots items =
  let found = ref Names.empty in
  let add lid = let name = root lid in if name <> "" && Char.uppercase_ascii name.[0] = name.[0] then found := Names.add name !found in
  let qualified = function Longident.Lident _ -> () | path -> add path in
  let default = Ast_iterator.default_iterator in
  let expr self e =
    (match e.pexp_desc with
     | Pexp_ident l | Pexp_construct (l, _) | Pexp_field (_, l) | Pexp_setfield (_, l, _) | Pexp_new l -> qualified l.txt
     | Pexp_record (fields, _) -> List.iter (fun ((l : _ Location.loc), _) -> qualified l.txt) fields
     | _ -> ());
    default.expr self e in
  let pat self p =
    (match p.ppat_desc with
     | Ppat_construct (l, _) | Ppat_type l -> qualified l.txt
     | Ppat_open (l, _) -> add l.txt
     | Ppat_record (fields, _) -> List.iter (fun ((l : _ Location.loc), _) -> qualified l.txt) fields
     | _ -> ());
    default.pat self p in
  let typ self t =
    (match t.ptyp_desc with Ptyp_constr (l, _) | Ptyp_class (l, _) -> qualified l.txt | _ -> ());
    default.typ self t in
  let module_expr self m = (match m.pmod_desc with Pmod_ident l -> add l.txt | _ -> ()); default.module_expr self m in
  let module_type self m =
    (match m.pmty_desc with Pmty_ident l -> qualified l.txt | Pmty_alias l -> add l.txt | _ -> ());
    default.module_type self m in
  let iterator = { default with expr; pat; typ; module_expr; module_type } in
  iterator.structure iterator items;
  !found

let module_alias name target =
  let body = Ast_helper.Mod.ident ~loc (lid (Longident.Lident target)) in
  Ast_helper.Str.module_ ~loc (Ast_helper.Mb.mk ~loc (Location.mkloc (Some name) loc) body)

(* opened, so that tests may have a module of the same name *)
let open_ target = Ast_helper.Str.open_ ~loc (Ast_helper.Opn.mk ~loc ~override:Override target)
let open_module name = open_ (Ast_helper.Mod.ident ~loc (lid (Longident.Lident name)))

(* the answer's module and the names that tests give it: [module S = Solution] *)
let names_of_answer answer items =
  let names = ref (Names.singleton answer) in
  let add (name : string option Location.loc) m =
    match name.txt, m.pmod_desc with
    | Some name, Pmod_ident { txt = Lident target; _ } when Names.mem target !names -> names := Names.add name !names
    | _ -> ()
  in
  let default = Ast_iterator.default_iterator in
  let module_binding self b = add b.pmb_name b.pmb_expr; default.module_binding self b in
  let expr self e =
    (match e.pexp_desc with Pexp_letmodule (name, m, _) -> add name m | _ -> ());
    default.expr self e in
  let iterator = { default with module_binding; expr } in
  iterator.structure iterator items;
  !names

let is_answer names m = match m.pmod_desc with Pmod_ident { txt = Lident n; _ } -> Names.mem n names | _ -> false

(* Whether the tests take all names of the answer for their own, by [open], [include] or [Solution.(...)]. *)
let opens names items =
  let found = ref false in
  let default = Ast_iterator.default_iterator in
  let open_declaration self (o : open_declaration) =
    if is_answer names o.popen_expr then found := true;
    default.open_declaration self o in
  let include_declaration self (i : include_declaration) =
    if is_answer names i.pincl_mod then found := true;
    default.include_declaration self i in
  let pat self p =
    (match p.ppat_desc with Ppat_open ({ txt = Lident n; _ }, _) when Names.mem n names -> found := true | _ -> ());
    default.pat self p in
  let iterator = { default with open_declaration; include_declaration; pat } in
  iterator.structure iterator items;
  !found

(* The tests without the places where they open the answer, which is open before all of them. *)
let unopened names items =
  let default = Ast_mapper.default_mapper in
  let rec expr self e =
    match e.pexp_desc with
    | Pexp_open (o, body) when is_answer names o.popen_expr -> expr self body
    | _ -> default.expr self e in
  let rec pat self p =
    match p.ppat_desc with
    | Ppat_open ({ txt = Lident n; _ }, inner) when Names.mem n names -> pat self inner
    | _ -> default.pat self p in
  let opened it =
    match it.pstr_desc with Pstr_open { popen_expr; _ } -> is_answer names popen_expr | _ -> false in
  let structure self items = default.structure self (List.filter (fun it -> not (opened it)) items) in
  let included it =
    match it.pstr_desc with Pstr_include { pincl_mod; _ } -> is_answer names pincl_mod | _ -> false in
  let mapper = { default with expr; pat; structure } in
  mapper.structure mapper (List.filter (fun it -> not (included it)) items)

(* Without a declared interface the answer is opened before everything else, so that whatever else has a name wins;
   modules that the tests name are bound again, as only the answer's own may come from the answer. *)
let open_answer_first ~answer ~secret ~known items =
  let kept name = Printf.sprintf "Gradus_%s_%s" secret name in
  let others = Names.filter (fun name -> name <> answer && known name) (module_roots items) in
  let others = Names.elements (Names.add "Stdlib" others) in
  List.map (fun name -> module_alias (kept name) name) others
  @ [ open_module answer ]
  @ [ open_ (Ast_helper.Mod.structure ~loc (List.map (fun name -> module_alias name (kept name)) others)) ]
  @ [ open_module "Stdlib" ]
  @ unopened (names_of_answer answer items) items

(* -------------------------------------------------------------------------------- tests of tasks without a signature *)

(* What the tests' environment has without the answer. *)
type library = {
  known : string -> bool; (* a module *)
  standard : string -> bool; (* a value of Stdlib *)
  defined : Longident.t -> bool; (* a value or a constructor *)
}

(* Names that tests are written with: they stay Stdlib's, whatever an answer calls so. *)
let kept =
  Names.of_list
    [ "mod"; "land"; "lor"; "lxor"; "lsl"; "lsr"; "asr"; "not"; "fst"; "snd"; "abs_float";
      "ignore"; "ref"; "incr"; "decr"; "raise"; "raise_notrace"; "failwith"; "invalid_arg"; "exit"; "at_exit";
      "string_of_int"; "string_of_bool"; "string_of_float"; "float_of_int"; "int_of_float"; "int_of_string"; "float_of_string";
      "bool_of_string"; "int_of_char"; "char_of_int"; "print_string"; "print_int"; "print_char"; "print_float";
      "print_endline"; "print_newline"; "prerr_string"; "prerr_endline"; "flush"; "stdin"; "stdout"; "stderr"; "max_int"; "min_int";
      "infinity"; "neg_infinity"; "nan"; "epsilon_float"; "max_float"; "min_float" ]

type mentions = {
  mutable names : Names.t; (* values and constructors, unqualified *)
  mutable own : Names.t; (* whatever the tests give a name themselves, wherever *)
  mutable again : Names.t; (* variables of these that they give more than once *)
  mutable structures : Names.t; (* modules that they write out *)
  mutable opened : Longident.t list;
}

let mentions items =
  let m = { names = Names.empty; own = Names.empty; again = Names.empty; structures = Names.empty; opened = [] } in
  let name = function Longident.Lident n -> m.names <- Names.add n m.names | _ -> () in
  let own (n : string Location.loc) = m.own <- Names.add n.txt m.own in
  let default = Ast_iterator.default_iterator in
  let expr self e =
    (match e.pexp_desc with
     | Pexp_ident l | Pexp_construct (l, _) -> name l.txt
     | Pexp_letmodule ({ txt = Some n; loc }, _, _) -> own (Location.mkloc n loc)
     | _ -> ());
    default.expr self e in
  let pat self p =
    (match p.ppat_desc with
     | Ppat_var n | Ppat_alias (_, n) -> if Names.mem n.txt m.own then m.again <- Names.add n.txt m.again; own n
     | Ppat_unpack { txt = Some n; loc } -> own (Location.mkloc n loc)
     | Ppat_construct (l, _) -> name l.txt
     | _ -> ());
    default.pat self p in
  let constructor_declaration self c = own c.pcd_name; default.constructor_declaration self c in
  let extension_constructor self c = own c.pext_name; default.extension_constructor self c in
  let module_binding self b =
    let written_out = match b.pmb_expr.pmod_desc with Pmod_structure _ -> true | _ -> false in
    Option.iter (fun n -> own { b.pmb_name with txt = n }; if written_out then m.structures <- Names.add n m.structures) b.pmb_name.txt;
    default.module_binding self b in
  let module_expr self x =
    (match x.pmod_desc with
     | Pmod_ident l -> m.opened <- l.txt :: m.opened
     | Pmod_functor (Named ({ txt = Some n; loc }, _), _) -> own (Location.mkloc n loc)
     | _ -> ());
    default.module_expr self x in
  let iterator = { default with expr; pat; constructor_declaration; extension_constructor; module_binding; module_expr } in
  iterator.structure iterator items;
  m

(* Such tests see the library's [abs] and not the answer's, so that an answer cannot change what they mean. A task that may
   have asked for [abs] would then judge the library. That depends on the task alone: no answer makes it so. *)
let refuse_what_judges_the_library ~answer ~library items =
  let m = mentions items in
  let theirs n = Names.mem n m.own in
  let is_letter c = c = '_' || (Char.lowercase_ascii c >= 'a' && Char.lowercase_ascii c <= 'z') in
  let ambiguous n = is_letter n.[0] && library.standard n && not (theirs n || Names.mem n kept) in
  (match Names.choose_opt (Names.filter ambiguous m.names) with
   | Some n ->
     raise (Broken (Printf.sprintf
       "the tests use %s of the standard library, which an answer may define, too: declare a signature, or write Stdlib.%s" n n))
   | None -> ());
  let aliases = names_of_answer answer items in
  let is_answer = function Longident.Lident n -> Names.mem n aliases | _ -> false in
  let opened = List.filter (fun path -> not (is_answer path)) m.opened in
  let defined n = library.defined (Lident n) || List.exists (fun path -> library.defined (Ldot (path, n))) opened in
  let of_answer n = not (theirs n || defined n) in
  let root n = n = answer || not (theirs n || library.known n) in
  if not (Names.exists of_answer m.names || Names.exists root (module_roots items)) then
    raise (Broken "the tests use nothing of the answer")

(* What the tests need of the answer, as far as their text tells: constructors of types are found under their own names. *)
let needed ~answer ~library items =
  let m = mentions items in
  let aliases = names_of_answer answer items in
  let found = ref Names.empty in
  let add name = found := Names.add name !found in
  let qualified = function Longident.Ldot (Lident n, name) when Names.mem n aliases -> add name | _ -> () in
  let passed = ref false (* as a module to a functor, or behind a signature *) and declared = ref Names.empty in
  let default = Ast_iterator.default_iterator in
  let expr self e =
    (match e.pexp_desc with
     | Pexp_ident l | Pexp_construct (l, _) -> qualified l.txt
     | Pexp_pack m -> if is_answer aliases m then passed := true
     | _ -> ());
    default.expr self e in
  let pat self p = (match p.ppat_desc with Ppat_construct (l, _) -> qualified l.txt | _ -> ()); default.pat self p in
  let module_expr self x =
    (match x.pmod_desc with
     | Pmod_ident l -> qualified l.txt
     | Pmod_apply (_, argument) -> if is_answer aliases argument then passed := true
     | Pmod_constraint (inner, _) -> if is_answer aliases inner then passed := true
     | _ -> ());
    default.module_expr self x in
  let signature_item self it =
    (match it.psig_desc with Psig_value v -> declared := Names.add v.pval_name.txt !declared | _ -> ());
    default.signature_item self it in
  let iterator = { default with expr; pat; module_expr; signature_item } in
  iterator.structure iterator items;
  if !passed then found := Names.union !found (Names.diff !declared m.own);
  let root path = Names.choose (module_roots [ Ast_helper.Str.open_ (Ast_helper.Opn.mk (Ast_helper.Mod.ident (lid path))) ]) in
  let others = List.filter (fun path -> not (Names.mem (root path) aliases)) m.opened in
  (* what is in modules of the tests' own is not known here, so unqualified names may be from there *)
  if List.for_all (fun path -> library.known (root path)) others then begin
    let defined n = library.defined (Lident n) || List.exists (fun path -> library.defined (Ldot (path, n))) others in
    Names.iter (fun n -> if not (Names.mem n m.own || defined n) then add n) m.names
  end;
  Names.iter (fun n -> if not (Names.mem n aliases || Names.mem n m.own || library.known n) then add n) (module_roots items);
  Names.elements !found

(* Libraries that people write tests with and that an answer does not define. *)
let libraries = [ "Base"; "Core"; "Stdio"; "Batteries"; "Containers" ]

let never = Ast_helper.Exp.assert_ ~loc (Ast_helper.Exp.construct ~loc (lid (Longident.Lident "false")) None)

(* The tests with [nothing] in place of the values that they need of the answer; None where they need more of it than values. *)
let without_answer ?(nothing = never) ~answer names items =
  let aliases = names_of_answer answer items in
  let default = Ast_mapper.default_mapper in
  let expr self e =
    match e.pexp_desc with
    | Pexp_ident { txt = Lident n; _ } when List.mem n names -> { nothing with pexp_loc = e.pexp_loc }
    | Pexp_ident { txt = Ldot (Lident m, _); _ } when Names.mem m aliases -> { nothing with pexp_loc = e.pexp_loc }
    | _ -> default.expr self e in
  let mapper = { default with expr } in
  let is_value n = Char.uppercase_ascii n.[0] <> n.[0] || List.mem n libraries in
  let simple = Names.equal aliases (Names.singleton answer) && List.for_all is_value names in
  if simple then Some (mapper.structure mapper (unopened aliases items)) else None

(* ----------------------------------------------------------------------------------------- what an answer may not lend *)

(* What decides in tests: with an [=] of its own, behind whatever [open], an answer would judge itself. *)
let deciding =
  Names.union kept
    (Names.of_list [ "="; "<>"; "=="; "!="; "<"; ">"; "<="; ">="; "&&"; "||"; "&"; "or"; "compare"; "|>"; "@@" ])

(* A name in typed tests that is the answer's, though it decides: one of these, one of the test framework ([framework]), or
   one in a module of the library ([known]), as [List.iter] is in [D.(List.iter ...)] where [D] has a [List] of its own. *)
let lent ~unit ~framework ~known structure =
  let found = ref None in
  let of_library lid = let name = root lid in name <> unit && known name in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (_, { txt = Lident name; _ }, vd)
       when (Names.mem name deciding || framework name) && Compiler.home vd = Some unit -> found := Some name
     | Texp_ident (_, { txt = Ldot (path, _); _ }, vd) when Compiler.home vd = Some unit && of_library path ->
       found := Some (root path)
     | _ -> ());
    Tast_iterator.default_iterator.expr self e in
  let module_expr self (m : Typedtree.module_expr) =
    (match m.mod_desc with
     | Tmod_ident (path, { txt; _ }) when of_library txt ->
       let path = match Env.normalize_module_path None m.mod_env path with path -> path | exception _ -> path in
       if Ident.name (Path.head path) = unit then found := Some (root txt)
     | _ -> ());
    Tast_iterator.default_iterator.module_expr self m in
  let iterator = { Tast_iterator.default_iterator with expr; module_expr } in
  iterator.structure iterator structure;
  !found

(* ------------------------------------------------------------------------------------------------------- exceptions *)

(* The paths of the exceptions that a signature declares. *)
let rec exceptions path items =
  let under name = match path with None -> Longident.Lident name | Some path -> Ldot (path, name) in
  let of_item it =
    match it.psig_desc with
    | Psig_exception { ptyexn_constructor = { pext_name; _ }; _ } -> [ under pext_name.txt ]
    | Psig_module { pmd_name = { txt = Some name; _ }; pmd_type = { pmty_desc = Pmty_signature items; _ }; _ } ->
      exceptions (Some (under name)) items
    | _ -> [] in
  List.concat_map of_item items

(* Tests that name several exceptions pass only if these are several: an answer could have made them one by an alias. *)
let distinct harness ~answer paths items =
  let rec within = function Longident.Lident name -> Longident.Ldot (Lident answer, name) | Ldot (path, name) -> Ldot (within path, name) | path -> path in
  let named = ref [] in
  let add (l : Longident.t Location.loc) = named := l.txt :: !named in
  let default = Ast_iterator.default_iterator in
  let expr self e = (match e.pexp_desc with Pexp_construct (l, _) -> add l | _ -> ()); default.expr self e in
  let pat self p = (match p.ppat_desc with Ppat_construct (l, _) -> add l | _ -> ()); default.pat self p in
  let iterator = { default with expr; pat } in
  iterator.structure iterator items;
  let constructor path =
    let name = Ast_helper.Str.eval ~loc (Ast_helper.Exp.construct ~loc (lid (within path)) None) in
    Ast_helper.Exp.extension ~loc (Location.mkloc "extension_constructor" loc, PStr [ name ]) in
  match List.filter (fun path -> List.mem path !named || List.mem (within path) !named) paths with
  | [] | [ _ ] -> []
  | paths -> [ Ast_helper.Str.eval ~loc (apply harness "distinct" [ Ast_helper.Exp.array ~loc (List.map constructor paths) ]) ]

(* ------------------------------------------------------------------------------------------------------------ whole *)

(* Tests have a generator and printers of their own, however they name them. *)
let own_random harness own items =
  let rec is_random = function
    | Longident.Ldot (Lident "Stdlib", ("Random" | "Printexc" as name)) -> Longident.Lident name
    | Ldot (inner, name) -> Ldot (is_random inner, name)
    | path -> path
  in
  let exits = not (Names.mem "exit" own) in
  let is_random = function
    | Longident.Lident "exit" | Ldot (Lident "Stdlib", "exit") when exits -> Longident.Ldot (Lident harness, "exit")
    | path -> is_random path in
  let renamed (l : Longident.t Location.loc) = { l with txt = is_random l.txt } in
  let default = Ast_mapper.default_mapper in
  let expr self e =
    match e.pexp_desc with
    | Pexp_ident l -> { e with pexp_desc = Pexp_ident (renamed l) }
    | _ -> default.expr self e in
  let module_expr self m =
    match m.pmod_desc with
    | Pmod_ident l -> { m with pmod_desc = Pmod_ident (renamed l) }
    | _ -> default.module_expr self m in
  let mapper = { default with expr; module_expr } in
  let items = mapper.structure mapper items in
  if not (List.exists (fun name -> Names.mem name (module_roots items)) [ "Random"; "Printexc" ]) then [], items
  else
    [ open_ (Ast_helper.Mod.ident ~loc (lid (Longident.Ldot (Lident harness, "Of_tests")))) ], items

let finish harness steps = Ast_helper.Str.eval ~loc (apply harness "finish" [ number steps ])

(* nothing uses what the tests define, so types that stay open in it are no mistake *)
let hiding structure =
  let body = Ast_helper.Mod.structure ~loc structure in
  let nothing = Ast_helper.Mty.signature ~loc [] in
  [ Ast_helper.Str.include_ ~loc (Ast_helper.Incl.mk ~loc (Ast_helper.Mod.constraint_ ~loc body nothing)) ]

type framework = Assert | Ounit2

let harness_name secret = "Gradus_" ^ secret

(* Rewritten tests of a task without a signature that end the process as soon as they use a value of the answer. *)
let ending ~secret ~answer names items =
  without_answer ~nothing:(apply (harness_name secret) "end_process" [ number Control.called ]) ~answer names items

(* [signature]: what the task declares, so that the answer's interface holds nothing but what was asked for. *)
let rewrite ~framework ~answer ~secret ~signature ~library items =
  let declared = signature <> None in
  let opened = framework = Assert || opens (names_of_answer answer items) items in
  let others = List.filter (fun path -> path <> Longident.Lident answer) (mentions items).opened in
  let defined n = library.defined (Lident n) || List.exists (fun path -> library.defined (Ldot (path, n))) others in
  let unknown n = not (Names.mem n (mentions items).own || defined n) in
  (* a suite that opens nothing of the answer and uses its names all the same *)
  let lacks = not opened && Names.exists unknown (mentions items).names in
  if opened && not declared then refuse_what_judges_the_library ~answer ~library items;
  let harness = harness_name secret in
  let distinct = distinct harness ~answer (exceptions None (Option.value signature ~default:[])) items in
  let random, items = own_random harness (mentions items).own items in
  let m = mentions items in
  let theirs n = Names.mem n m.own in
  let of_answer = function
    | Longident.Lident n -> not (theirs n || library.standard n || Names.mem n kept)
    | path -> let n = root path in not (Names.mem n m.structures || library.known n && n <> answer) in
  (* what tests define anew they do not compare by, and a suite that skips cases does not say what it compares *)
  let judged = [ "="; "&&"; "not"; "<"; "<="; "-."; "abs_float" ] in
  let judged = if framework = Ounit2 then "assert_equal" :: "assert_bool" :: "assert_raises" :: "cmp_float" :: judged else judged in
  let whole = not (List.exists (fun n -> Names.mem n m.names) [ "skip_if"; "todo" ] || List.exists theirs judged) in
  let marks =
    { Split.suite = framework = Ounit2; whole; harness; of_answer; once = (fun n -> not (Names.mem n m.again)); values = []; data = Split.Names.empty; checks = Split.Names.empty;
      conditions = Split.Names.empty; asking = Split.Names.empty } in
  let mentions_answer e =
    let found = ref false in
    let expr self e =
      (match Split.ident_of e with Some name when of_answer name && name <> Lident "assert_equal" -> found := true | _ -> ());
      Ast_iterator.default_iterator.expr self e in
    let iterator = { Ast_iterator.default_iterator with expr } in
    iterator.expr iterator e;
    !found in
  Random.self_init ();
  let rewritten, total, steps, pairs =
    match framework with Assert -> count_asserts harness marks items | Ounit2 -> delay_cases harness marks ~of_answer:mentions_answer items
  in
  let visible =
    if declared && lacks then random @ (open_module answer :: open_module "Stdlib" :: rewritten)
    else if declared then random @ if framework = Assert then open_module answer :: rewritten else rewritten
    else if opened || lacks then open_answer_first ~answer ~secret ~known:library.known (random @ rewritten)
    else random @ rewritten
  in
  let numbers, pool = decoys harness ~total:(total + List.length pairs) in
  let sheet known =
    let values = Split.told marks known in
    let pair (id, changed) = Printf.sprintf "%04x%c" id (if changed then '!' else '=') in
    Printf.sprintf "%b %d %d %d\n%s%s%s" (framework = Ounit2) total (List.length values) (List.length pairs)
      (String.concat "" values) (String.concat "" (List.map pair pairs)) numbers, Split.groups marks known in
  (module_alias harness "Gradus_harness" :: pool :: (distinct @ visible)) @ [ finish harness steps ], total, sheet
