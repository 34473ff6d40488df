(* Expected values, taken out of the tests. Where a test compares something with data that is written down in it, the data
   is replaced by a handle: the harness tells the referee what was to be compared with it, and the referee knows the rest.
   First, as written: which expressions are data that a test always compares, and with nothing else done to them. Then, as
   typed: what value that is. *)

open Parsetree

module Names = Map.Make (String)

let ident_of e = match e.pexp_desc with Pexp_ident { txt; _ } -> Some txt | _ -> None

(* --------------------------------------------------------------------------------------------------- as written *)

(* How the referee compares: equal texts, or floats whose difference is less than, at most, or in proportion at most so much. *)
type way = Exact | Less of float | At_most of float | In_proportion of float

let value_mark = "gradus.value." and near_mark = "gradus.near." and equal_mark = "gradus.equal"
let marked name e =
  let attribute = Ast_helper.Attr.mk (Location.mknoloc name) (PStr []) in
  { e with pexp_attributes = attribute :: e.pexp_attributes }

(* the number of a value, and whether it is a float to be near to *)
let number_of attributes =
  let number mark near a =
    let name = a.attr_name.txt and n = String.length mark in
    if String.length name > n && String.sub name 0 n = mark
    then Option.map (fun number -> number, near) (int_of_string_opt (String.sub name n (String.length name - n))) else None in
  match List.find_map (number value_mark false) attributes with
  | None -> List.find_map (number near_mark true) attributes
  | found -> found

let is_equal attributes = List.exists (fun a -> a.attr_name.txt = equal_mark) attributes

type marks = {
  suite : bool; (* tests compare by [assert_equal] *)
  whole : bool; (* false: nothing is taken out *)
  harness : string;
  of_answer : Longident.t -> bool; (* a name is the answer's *)
  once : string -> bool; (* the tests give this name once at most, wherever *)
  mutable values : (int * way) list; (* which test or case they belong to; latest first *)
  mutable data : unit Names.t; (* names that stand for it *)
  mutable checks : (Asttypes.arg_label * way option) list Names.t; (* functions of the tests: the parameters they only compare *)
  mutable conditions : (Asttypes.arg_label * way option) list Names.t; (* those that say whether something holds *)
  mutable asking : unit Names.t; (* functions of the tests that compare nothing *)
}

let is_data m e = Data.is_data (fun name -> Names.mem name m.data) e

let float_of e =
  match e.pexp_desc with
  | Pexp_constant c -> (match Compiler.constant c with Pconst_float (text, None) -> float_of_string_opt text | _ -> None)
  | _ -> None

let is_assert_equal m e =
  m.suite && match ident_of e with Some (Lident "assert_equal" | Ldot (Lident "OUnit2", "assert_equal")) -> true | _ -> false

let labels arguments = List.map fst arguments

(* Which arguments of this call are compared, and how, and nothing else. *)
let compared m helpers f arguments =
  if is_assert_equal m f then
    let way =
      match List.find_opt (fun (label, _) -> label = Asttypes.Labelled "cmp" || label = Optional "cmp") arguments with
      | None -> Some Exact
      | Some (_, cmp) ->
        match cmp.pexp_desc with
        | Pexp_ident { txt = Lident "cmp_float"; _ } -> Some (In_proportion 0.00001)
        | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident "cmp_float"; _ }; _ }, [ Labelled "epsilon", e ]) ->
          Option.map (fun e -> In_proportion e) (float_of e)
        | _ -> None in
    Option.map (fun way -> List.map (fun (label, _) -> if label = Asttypes.Nolabel then Some way else None) arguments) way
  else
    match ident_of f with
    | Some (Lident name) ->
      Option.map
        (fun parameters ->
          let left = ref parameters in
          let take label =
            let rec go seen = function
              | (l, only) :: rest when l = label -> left := List.rev_append seen rest; only
              | other :: rest -> go (other :: seen) rest
              | [] -> None
            in
            go [] !left
          in
          List.map (fun (label, _) -> take label) arguments)
        (Names.find_opt name helpers)
    | _ -> None

let truth name = Ast_helper.Exp.construct (Location.mknoloc (Longident.Lident name)) None
let apply_ ~loc f arguments = Ast_helper.Exp.apply ~loc f (List.map (fun a -> Asttypes.Nolabel, a) arguments)
let operator name = Ast_helper.Exp.ident (Location.mknoloc (Longident.Lident name))
let of_harness m name = Ast_helper.Exp.ident (Location.mknoloc (Longident.Ldot (Lident m.harness, name)))

(* [abs_float (a -. b)]: the two *)
let difference e =
  match e.pexp_desc with
  | Pexp_apply
      ({ pexp_desc = Pexp_ident { txt = Lident "abs_float" | Ldot (Lident "Float", "abs"); _ }; _ },
       [ Nolabel, { pexp_desc = Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident "-."; _ }; _ }, [ Nolabel, a; Nolabel, b ]); _ } ]) ->
    Some (a, b)
  | _ -> None

(* Whether [e] compares anything by itself: by an operator, a function that does, or a pattern. *)
let decides m e =
  let comparing = [ "="; "<>"; "=="; "!="; "<"; ">"; "<="; ">="; "compare"; "equal"; "mem"; "min"; "max" ] in
  let found = ref false in
  let default = Ast_iterator.default_iterator in
  let expr self e =
    (match ident_of e with
     | Some (Lident name | Ldot (_, name)) when List.mem name comparing -> found := true
     | Some (Lident name) when Names.mem name m.conditions && not (Names.mem name m.asking) -> found := true
     | _ -> ());
    default.expr self e in
  let pat self p =
    (match p.ppat_desc with Ppat_constant _ | Ppat_interval _ -> found := true | _ -> ());
    default.pat self p in
  let iterator = { default with expr; pat } in
  iterator.expr iterator e;
  !found

(* [side]: what becomes of an expression that is compared in this way. The places where [e] is certain to compare. *)
let rec checks m side e =
  let again = checks m side in
  let inside desc = { e with pexp_desc = desc } in
  match e.pexp_desc with
  | Pexp_assert c when not m.suite -> inside (Pexp_assert (condition m side c))
  | Pexp_sequence (a, b) -> inside (Pexp_sequence (again a, again b))
  | Pexp_let (flag, bindings, body) ->
    (* what is checked first may be all that there is: [let () = assert ... in] *)
    let unit_ b = match b.pvb_pat.ppat_desc with
      | Ppat_construct ({ txt = Lident "()"; _ }, None) | Ppat_any -> { b with pvb_expr = again b.pvb_expr }
      | _ -> b in
    inside (Pexp_let (flag, List.map unit_ bindings, again body))
  | Pexp_open (o, body) -> inside (Pexp_open (o, again body))
  | Pexp_letmodule (name, x, body) -> inside (Pexp_letmodule (name, x, again body))
  | Pexp_constraint (body, t) -> inside (Pexp_constraint (again body, t))
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "assert_bool"; _ }; _ } as f), [ (Nolabel, message); (Nolabel, c) ]) when m.suite ->
    inside (Pexp_apply (f, [ Nolabel, message; Nolabel, condition m side c ]))
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "assert_raises"; _ }; _ } as f), [ (Nolabel, expected); body ]) when m.suite ->
    inside (Pexp_apply (f, [ Nolabel, payload side expected; body ]))
  | Pexp_apply (f, arguments) -> Option.value (call m m.checks side e f arguments) ~default:e
  | _ -> e

and call m helpers side e f arguments =
  Option.map
    (fun ways ->
      let argument way (label, a) = label, match way with Some way -> side way a | None -> a in
      { e with pexp_desc = Pexp_apply (f, List.map2 argument ways arguments) })
    (compared m helpers f arguments)

(* of an exception that is expected *)
and payload side e =
  match e.pexp_desc with
  | Pexp_construct (name, Some ({ pexp_desc = Pexp_tuple parts; _ } as tuple)) ->
    { e with pexp_desc = Pexp_construct (name, Some { tuple with pexp_desc = Pexp_tuple (List.map (side Exact) parts) }) }
  | Pexp_construct (name, Some part) -> { e with pexp_desc = Pexp_construct (name, Some (side Exact part)) }
  | _ -> e

(* What is false fails, so that a condition need not compare where it does not hold. *)
and condition m side e =
  let again = condition m side in
  let inside desc = { e with pexp_desc = desc } in
  let near way (a, b) strict epsilon =
    let epsilon = Ast_helper.Exp.constant ~loc:e.pexp_loc (Ast_helper.Const.float (Printf.sprintf "%h" epsilon)) in
    apply_ ~loc:e.pexp_loc (of_harness m (if strict then "nearer" else "near")) [ epsilon; side way a; side way b ] in
  match e.pexp_desc with
  | Pexp_constraint (body, t) -> inside (Pexp_constraint (again body, t))
  | Pexp_sequence (a, b) -> inside (Pexp_sequence (a, again b))
  | Pexp_let (flag, bindings, body) -> inside (Pexp_let (flag, bindings, again body))
  | Pexp_open (o, body) -> inside (Pexp_open (o, again body))
  | Pexp_letmodule (name, x, body) -> inside (Pexp_letmodule (name, x, again body))
  | Pexp_ifthenelse (c, a, Some b) when is_false b -> inside (Pexp_ifthenelse (c, again a, Some b))
  | Pexp_match (subject, cases) -> inside (Pexp_match (subject, only_case m side cases))
  | Pexp_try (body, cases) when ends_false body -> inside (Pexp_try (body, only_case m side cases))
  | Pexp_try (body, cases) when List.for_all (fun c -> is_false c.pc_rhs) cases -> inside (Pexp_try (again body, cases))
  | Pexp_function _ when Compiler.parameter e = None -> Option.fold ~none:e ~some:(fun cases -> Compiler.function_of e (only_case m side cases)) (Compiler.cases_of e)
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "&&"; _ }; _ } as f), [ (l, a); (r, b) ]) ->
    inside (Pexp_apply (f, [ l, again a; r, again b ]))
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "="; _ }; _ } as f), [ (l, a); (r, b) ]) ->
    if is_data m a && is_data m b then e
    else inside (Pexp_apply (marked equal_mark f, [ l, side Exact a; r, side Exact b ]))
  | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident ("<" | "<=" as op); _ }; _ }, [ (Nolabel, d); (Nolabel, epsilon) ]) ->
    (match difference d, float_of epsilon with
     | Some sides, Some epsilon when op = "<" -> near (Less epsilon) sides true epsilon
     | Some sides, Some epsilon -> near (At_most epsilon) sides false epsilon
     | _ -> e)
  | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident "not"; _ }; _ }, [ (Nolabel, a) ]) when asks m a -> holds side a "false"
  | _ when asks m e -> holds side e "true"
  | Pexp_apply (f, arguments) -> Option.value (call m m.conditions side e f arguments) ~default:e
  | _ -> e

and is_false e = match e.pexp_desc with Pexp_construct ({ txt = Lident "false"; _ }, None) -> true | _ -> false

and ends_false e = match e.pexp_desc with Pexp_sequence (_, e) | Pexp_let (_, _, e) -> ends_false e | _ -> is_false e

(* where all cases but one are [false] *)
and only_case m side cases =
  match List.filter (fun c -> not (is_false c.pc_rhs)) cases with
  | [ one ] -> List.map (fun c -> if c == one then { c with pc_rhs = condition m side c.pc_rhs } else c) cases
  | _ -> cases

(* a call of the answer's function, or of one of the tests that asks it: that it holds is what is expected *)
and asks m e =
  match e.pexp_desc with
  | Pexp_apply (f, arguments) ->
    (match ident_of f with
     | Some (Lident name) when Names.mem name m.asking -> not (List.exists (fun (_, a) -> decides m a) arguments)
     | Some name -> m.of_answer name
     | None -> false)
  | _ -> false

and holds side e what =
  apply_ ~loc:e.pexp_loc (marked equal_mark (operator "=")) [ e; side Exact (truth what) ]

let add_value m group way =
  m.values <- (group, way) :: m.values;
  (if way = Exact then value_mark else near_mark) ^ string_of_int (List.length m.values - 1)

let count name e =
  let n = ref 0 in
  let expr self e =
    (match ident_of e with Some (Lident x) when x = name -> incr n | _ -> ());
    Ast_iterator.default_iterator.expr self e in
  let pat self p =
    (match p.ppat_desc with Ppat_var { txt; _ } | Ppat_alias (_, { txt; _ }) when txt = name -> n := 1000 | _ -> ());
    Ast_iterator.default_iterator.pat self p in
  let iterator = { Ast_iterator.default_iterator with expr; pat } in
  iterator.expr iterator e;
  !n

(* How [e] compares this name, where it does so for certain, in one way, and does nothing else with it. [walk]: [checks] or
   [condition]. *)
let only_compares m walk name e =
  let ways = ref [] in
  let side way a = (match ident_of a with Some (Longident.Lident x) when x = name -> ways := way :: !ways | _ -> ()); a in
  ignore (walk m side e);
  match List.sort_uniq compare !ways with
  | [ way ] when List.length !ways = count name e -> Some way
  | _ -> None

(* [e] with the data that it compares marked as values of this group, names that stand for data included. *)
let rec mark m group e =
  let side way a = if m.whole && is_data m a then marked (add_value m group way) a else a in
  let rec named e =
    match e.pexp_desc with
    | Pexp_let (Nonrecursive, bindings, body) ->
      let stands b = match b.pvb_pat.ppat_desc with
        | Ppat_var { txt; _ } when is_data m b.pvb_expr ->
          (match only_compares m checks txt body with
           | Some way ->
             m.data <- Names.remove txt m.data; (* not again where it is compared *)
             { b with pvb_expr = side way b.pvb_expr }
           | None -> b)
        | _ -> b in
      { e with pexp_desc = Pexp_let (Nonrecursive, List.map stands bindings, named body) }
    | Pexp_open (o, body) -> { e with pexp_desc = Pexp_open (o, named body) }
    | _ -> e
  in
  let e = named e in
  checks m side e

(* The function of a case: what is inside it is run as the case. *)
and mark_case m group e =
  match Compiler.parameter e with
  | Some (label, default, p, body) ->
    { e with pexp_desc = (Compiler.fun_ ~loc:e.pexp_loc label default p (mark_case m group body)).pexp_desc }
  | None -> mark m group e

let rec parameters e =
  match Compiler.parameter e with
  | Some (label, _, p, body) -> let more, rest = parameters body in (label, p) :: more, rest
  | None -> [], e

(* Notes what stands for data, or makes it. *)
let note_data m b =
  match b.pvb_pat.ppat_desc, parameters b.pvb_expr with
  | Ppat_var { txt = name; _ }, (ps, body) ->
    let known = m.data in
    let add p = match p.ppat_desc with Ppat_var { txt; _ } -> m.data <- Names.add txt () m.data | _ -> () in
    List.iter (fun (_, p) -> add p) ps;
    if ps <> [] then m.data <- Names.add name () m.data; (* it may call itself *)
    let is = is_data m body in
    m.data <- (if is then Names.add name () known else Names.remove name known)
  | _ -> ()

(* [e] with other literals where it compares, for tests that nothing is taken out of: in place of [x = v] stands
   [x = w && w <> v]. Whatever is pure passes one of the two at most. None where no literal is compared with. *)
let twin m e =
  let changed = ref false in
  let default = Ast_mapper.default_mapper in
  let stdlib name = Ast_helper.Exp.ident (Location.mknoloc (Longident.Ldot (Lident "Stdlib", name))) in
  let asks_answer e =
    let found = ref false in
    let expr self e =
      (match ident_of e with Some name when m.of_answer name -> found := true | _ -> ());
      Ast_iterator.default_iterator.expr self e in
    let iterator = { Ast_iterator.default_iterator with expr } in
    iterator.expr iterator e;
    !found in
  let other e =
    let done_ = ref false in
    let literal c =
      let open Ast_helper.Const in
      match Compiler.constant c with
      | Pconst_integer (digits, suffix) -> Option.map (fun n -> integer ?suffix (Int64.to_string (Int64.succ n))) (Int64.of_string_opt digits)
      | Pconst_string (text, _, _) -> Some (string (text ^ "~"))
      | Pconst_char c -> Some (char (if c = 'a' then 'b' else 'a'))
      | Pconst_float (text, None) -> Option.map (fun f -> float (Printf.sprintf "%h" (f +. 1.))) (float_of_string_opt text)
      | Pconst_float (_, Some _) -> None in
    let expr self e =
      match e.pexp_desc with
      | Pexp_constant c when not !done_ ->
        (match literal c with Some c -> done_ := true; { e with pexp_desc = Pexp_constant c } | None -> e)
      | _ -> default.expr self e in
    let mapper = { default with expr } in
    let e = mapper.expr mapper e in
    if !done_ then Some e else None in
  let expr self e =
    match e.pexp_desc with
    | Pexp_apply (f, [ (_, a); (_, b) ]) when is_equal f.pexp_attributes ->
      let asked, v = if asks_answer b then b, a else a, b in
      (match if asks_answer v then None else other v with
       | Some w ->
         changed := true;
         apply_ ~loc:e.pexp_loc (stdlib "&&") [ apply_ ~loc:e.pexp_loc f [ asked; w ]; apply_ ~loc:e.pexp_loc (stdlib "<>") [ w; v ] ]
       | None -> e)
    | _ -> default.expr self e in
  let mapper = { default with expr } in
  let e = mapper.expr mapper (checks m (fun _ a -> a) e) in
  if !changed then Some e else None

(* Notes what a function of the tests only compares, and marks by what. *)
let helper m b =
  note_data m b;
  match b.pvb_pat.ppat_desc, parameters b.pvb_expr with
  | Ppat_var { txt = name; _ }, (_ :: _ as ps, body) when m.once name ->
    let only walk (label, p) =
      match p.ppat_desc with
      | Ppat_var { txt; _ } | Ppat_constraint ({ ppat_desc = Ppat_var { txt; _ }; _ }, _) -> label, only_compares m walk txt body
      | _ -> label, None
    in
    let known = List.map (only checks) ps and held = List.map (only condition) ps in
    let compares = List.exists (fun (_, way) -> way <> None) in
    m.checks <- if compares known then Names.add name known m.checks else Names.remove name m.checks;
    m.conditions <- Names.add name held m.conditions;
    m.asking <- if not (decides m body) then Names.add name () m.asking else Names.remove name m.asking;
    let rec within walk e =
      match Compiler.parameter e with
      | Some (label, default, p, body) ->
        { e with pexp_desc = (Compiler.fun_ ~loc:e.pexp_loc label default p (within walk body)).pexp_desc }
      | None -> walk m (fun _ a -> a) e
    in
    if compares known then { b with pvb_expr = within checks b.pvb_expr }
    else if compares held then { b with pvb_expr = within condition b.pvb_expr }
    else b
  | Ppat_var { txt = name; _ }, _ ->
    m.checks <- Names.remove name m.checks;
    m.conditions <- Names.remove name m.conditions;
    m.asking <- Names.remove name m.asking;
    b
  | _ -> b

(* ----------------------------------------------------------------------------------------------------- as typed *)

(* What the referee compares with, of the values that are known, by number: digests, and the bits of floats. None at all
   where tests compare by an [=] of another meaning. *)
let known structure =
  let found = ref [] and sure = ref true in
  Hashtbl.reset Data.bindings;
  Data.work := 0;
  let value_binding self (b : Typedtree.value_binding) =
    Option.iter (fun id -> Hashtbl.replace Data.bindings (Ident.unique_name id) b.vb_expr) (Compiler.variable b.vb_pat);
    Tast_iterator.default_iterator.value_binding self b in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (_, _, { val_kind = Val_prim { prim_name = "%equal"; _ }; _ }) -> ()
     | _ -> if is_equal e.exp_attributes then sure := false);
    (match number_of e.exp_attributes with
     | Some (n, near) ->
       (match Data.value_of ~known:[] ~named:false e with
        | exception _ -> ()
        | value when near -> found := (n, Gradus_value.bits (Obj.obj value)) :: !found
        | value -> (match Gradus_value.text value with
          | Some text -> found := (n, Digest.to_hex (Digest.string text)) :: !found
          | None | exception _ -> ()))
     | None -> ());
    Tast_iterator.default_iterator.expr self e in
  let iterator = { Tast_iterator.default_iterator with expr; value_binding } in
  iterator.structure iterator structure;
  if !sure then !found else []

(* The typed tests with handles in place of the values that are known. *)
let taken_out env known structure =
  let ident name e =
    let path, vd = Env.find_value_by_name (Ldot (Lident "Gradus_harness", name)) env in
    { e with Typedtree.exp_desc = Texp_ident (path, Location.mknoloc (Longident.Lident name), vd); exp_attributes = []; exp_extra = [] } in
  let default = Tast_mapper.default in
  let expr self (e : Typedtree.expression) =
    match number_of e.exp_attributes with
    | Some (n, near) when List.mem_assoc n known ->
      let number = { e with exp_desc = Texp_constant (Const_int n); exp_attributes = []; exp_extra = [] } in
      { number with exp_desc = Texp_apply (ident (if near then "near_handle" else "handle") e, [ Nolabel, Some number ]) }
    | _ -> if is_equal e.exp_attributes then ident "equal" e else default.expr self e
  in
  let mapper = { default with expr } in
  mapper.structure mapper structure

(* The same of tests as they are written. [harness]: its name there, which an answer cannot know. *)
let taken_out_as_written ~harness known items =
  let ident name = Ast_helper.Exp.ident (Location.mknoloc (Longident.Ldot (Lident harness, name))) in
  let default = Ast_mapper.default_mapper in
  let expr self e =
    match number_of e.pexp_attributes with
    | Some (n, near) when List.mem_assoc n known ->
      Ast_helper.Exp.apply (ident (if near then "near_handle" else "handle")) [ Nolabel, Ast_helper.Exp.constant (Ast_helper.Const.int n) ]
    | _ -> if is_equal e.pexp_attributes then ident "equal" else default.expr self e
  in
  let mapper = { default with expr } in
  mapper.structure mapper items

(* What the referee is told of them: "<group, 4><way, 1><digest, or bits of the float and of the tolerance, 32>", in the order
   of their numbers; a group of ffff is none. *)
let told m known =
  let line n (group, way) =
    let with_tolerance bits sign epsilon = Printf.sprintf "%04x%c%s%s" group sign bits (Gradus_value.bits epsilon) in
    match List.assoc_opt n known, way with
    | Some digest, Exact -> Printf.sprintf "%04x=%s" group digest
    | Some bits, Less epsilon -> with_tolerance bits '<' epsilon
    | Some bits, At_most epsilon -> with_tolerance bits '[' epsilon
    | Some bits, In_proportion epsilon -> with_tolerance bits '~' epsilon
    | None, _ -> "ffff" ^ String.make 33 '-'
  in
  List.mapi line (List.rev m.values)

(* how many tests or cases have a value that is known *)
let groups m known =
  let group n (group, _) = if List.mem_assoc n known then Some group else None in
  List.length (List.sort_uniq compare (List.filter_map Fun.id (List.mapi group (List.rev m.values))))
