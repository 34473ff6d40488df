(* Expected values, taken out of the tests. Where a test compares something with data that is written down in it, the data
   is replaced by a handle: the harness tells the referee what was to be compared with it, and the referee knows the rest.
   First, as written: which expressions are data that a test always compares, and with nothing else done to them. Then, as
   typed: what value that is. *)

open Parsetree

module Names = Map.Make (String)

let ident_of e = match e.pexp_desc with Pexp_ident { txt; _ } -> Some txt | _ -> None

(* what can be worked out here: operators of the standard library *)
let operators = [ "~-"; "~-."; "+"; "-"; "*"; "/"; "mod"; "+."; "-."; "*."; "/."; "^"; "@" ]

(* [named]: names that stand for data, or for functions that make it. *)
let rec is_data named e =
  let is_data = is_data named in
  match e.pexp_desc with
  | Pexp_constant _ -> true
  | Pexp_ident { txt = Lident name; _ } -> named name
  | Pexp_construct (_, argument) | Pexp_variant (_, argument) -> Option.fold ~none:true ~some:is_data argument
  | Pexp_tuple parts | Pexp_array parts -> List.for_all is_data parts
  | Pexp_record (fields, None) -> List.for_all (fun (_, e) -> is_data e) fields
  | Pexp_constraint (e, _) -> is_data e
  | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident op; _ }; _ }, arguments) ->
    (List.mem op operators || named op) && List.for_all (fun (label, e) -> label = Asttypes.Nolabel && is_data e) arguments
  | _ -> false

(* --------------------------------------------------------------------------------------------------- as written *)

let value_mark = "gradus.value." and equal_mark = "gradus.equal"
let marked name e =
  let attribute = Ast_helper.Attr.mk (Location.mknoloc name) (PStr []) in
  { e with pexp_attributes = attribute :: e.pexp_attributes }

let number_of attributes =
  List.find_map
    (fun a ->
      let name = a.attr_name.txt and n = String.length value_mark in
      if String.length name > n && String.sub name 0 n = value_mark
      then int_of_string_opt (String.sub name n (String.length name - n)) else None)
    attributes

let is_equal attributes = List.exists (fun a -> a.attr_name.txt = equal_mark) attributes

type marks = {
  suite : bool; (* tests compare by [assert_equal] *)
  whole : bool; (* false: nothing is taken out *)
  of_answer : string -> bool; (* a name is the answer's *)
  mutable groups : int list; (* of the values: which test or case they belong to; latest first *)
  mutable data : unit Names.t; (* names that stand for it *)
  mutable helpers : (Asttypes.arg_label * bool) list Names.t; (* functions of the tests: the parameters they only compare *)
}

let is_data m e = is_data (fun name -> Names.mem name m.data) e

let is_assert_equal m e =
  m.suite && match ident_of e with Some (Lident "assert_equal" | Ldot (Lident "OUnit2", "assert_equal")) -> true | _ -> false

let labels arguments = List.map fst arguments

(* Which arguments of this call are compared and nothing else. *)
let compared m f arguments =
  if is_assert_equal m f then
    if List.mem (Asttypes.Labelled "cmp") (labels arguments) || List.mem (Asttypes.Optional "cmp") (labels arguments) then None
    else Some (List.map (fun (label, _) -> label = Asttypes.Nolabel) arguments)
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
              | [] -> false
            in
            go [] !left
          in
          List.map (fun (label, _) -> take label) arguments)
        (Names.find_opt name m.helpers)
    | _ -> None

let truth name = Ast_helper.Exp.construct (Location.mknoloc (Longident.Lident name)) None
let equal_ = Ast_helper.Exp.ident (Location.mknoloc (Longident.Lident "="))

(* [side]: what becomes of an expression that is compared. The places where [e] is certain to compare. *)
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
  | Pexp_apply (f, arguments) ->
    (match compared m f arguments with
     | Some which ->
       inside (Pexp_apply (f, List.map2 (fun only (label, a) -> label, if only then side a else a) which arguments))
     | None -> e)
  | _ -> e

and condition m side e =
  match e.pexp_desc with
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "&&"; _ }; _ } as f), [ (l, a); (r, b) ]) ->
    { e with pexp_desc = Pexp_apply (f, [ l, condition m side a; r, condition m side b ]) }
  | Pexp_apply (({ pexp_desc = Pexp_ident { txt = Lident "="; _ }; _ } as f), [ (l, a); (r, b) ]) ->
    { e with pexp_desc = Pexp_apply (marked equal_mark f, [ l, side a; r, side b ]) }
  | Pexp_apply ({ pexp_desc = Pexp_ident { txt = Lident "not"; _ }; _ }, [ (Nolabel, a) ]) when asks m a -> holds m side a "false"
  | _ -> if asks m e then holds m side e "true" else e

(* a call of the answer's function: that it holds is what is expected *)
and asks m e =
  match e.pexp_desc with
  | Pexp_apply (f, _) -> (match ident_of f with Some (Lident name) -> m.of_answer name | _ -> false)
  | _ -> false

and holds _ side e what =
  Ast_helper.Exp.apply ~loc:e.pexp_loc (marked equal_mark equal_) [ Nolabel, e; Nolabel, side (truth what) ]

let add_value m group =
  m.groups <- group :: m.groups;
  value_mark ^ string_of_int (List.length m.groups - 1)

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

(* Whether [e] does nothing with this name but to compare it, and does so for certain. *)
let only_compares m name e =
  let compared = ref 0 in
  let side a = (match ident_of a with Some (Longident.Lident x) when x = name -> incr compared | _ -> ()); a in
  ignore (checks m side e);
  !compared > 0 && !compared = count name e

(* [e] with the data that it compares marked as values of this group, names that stand for data included. *)
let rec mark m group e =
  let side a = if m.whole && is_data m a then marked (add_value m group) a else a in
  let rec named e =
    match e.pexp_desc with
    | Pexp_let (Nonrecursive, bindings, body) ->
      let stands b = match b.pvb_pat.ppat_desc with
        | Ppat_var { txt; _ } when is_data m b.pvb_expr && only_compares m txt body ->
          m.data <- Names.remove txt m.data; (* not again where it is compared *)
          { b with pvb_expr = side b.pvb_expr }
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
    let is = is_data m body in
    m.data <- (if is then Names.add name () known else Names.remove name known)
  | _ -> ()

(* Notes what a function of the tests only compares, and marks by what. *)
let helper m b =
  note_data m b;
  match b.pvb_pat.ppat_desc, parameters b.pvb_expr with
  | Ppat_var { txt = name; _ }, (_ :: _ as ps, body) ->
    let only (label, p) =
      match p.ppat_desc with
      | Ppat_var { txt; _ } | Ppat_constraint ({ ppat_desc = Ppat_var { txt; _ }; _ }, _) -> label, only_compares m txt body
      | _ -> label, false
    in
    let known = List.map only ps in
    m.helpers <- if List.exists snd known then Names.add name known m.helpers else Names.remove name m.helpers;
    let rec within e =
      match Compiler.parameter e with
      | Some (label, default, p, body) ->
        { e with pexp_desc = (Compiler.fun_ ~loc:e.pexp_loc label default p (within body)).pexp_desc }
      | None -> checks m Fun.id e
    in
    if List.exists snd known then { b with pvb_expr = within b.pvb_expr } else b
  | Ppat_var { txt = name; _ }, _ -> m.helpers <- Names.remove name m.helpers; b
  | _ -> b

(* ----------------------------------------------------------------------------------------------------- as typed *)

exception Unknown

let work_out name (values : Obj.t list) =
  let ints f = match values with [ a; b ] -> Obj.repr (f (Obj.obj a) (Obj.obj b) : int) | _ -> raise Unknown in
  let floats f = match values with [ a; b ] -> Obj.repr (f (Obj.obj a) (Obj.obj b) : float) | _ -> raise Unknown in
  match name, values with
  | "~-", [ a ] -> Obj.repr (-(Obj.obj a : int))
  | "~-.", [ a ] -> Obj.repr (-.(Obj.obj a : float))
  | "+", _ -> ints ( + ) | "-", _ -> ints ( - ) | "*", _ -> ints ( * ) | "/", _ -> ints ( / ) | "mod", _ -> ints ( mod )
  | "+.", _ -> floats ( +. ) | "-.", _ -> floats ( -. ) | "*.", _ -> floats ( *. ) | "/.", _ -> floats ( /. )
  | "^", [ a; b ] -> Obj.repr ((Obj.obj a : string) ^ Obj.obj b)
  | "@", [ a; b ] -> Obj.repr ((Obj.obj a : Obj.t list) @ Obj.obj b)
  | _ -> raise Unknown

(* how much work that may be: tests can define data that grows with every name *)
let max_work = 100_000
let work = ref 0

let bindings : (string, Typedtree.expression) Hashtbl.t = Hashtbl.create 64

(* [known]: the parameters of the function that makes it; [named]: it is what a name stands for, so that it may have been
   changed since if that is possible at all. *)
let rec value_of ~known ~named (e : Typedtree.expression) =
  let value = value_of ~known ~named in
  incr work;
  if !work > max_work then raise Unknown;
  match e.exp_desc with
  | Texp_ident (Pident id, _, _) ->
    (match List.assoc_opt (Ident.unique_name id) known with
     | Some value -> value
     | None -> value_of ~known:[] ~named:true (bound id))
  | Texp_apply ({ exp_desc = Texp_ident (Pident id, _, _); _ }, arguments) ->
    let rec enter known f = function
      | [] -> value_of ~known ~named f
      | (_, Some argument) :: rest ->
        (match Compiler.typed_parameter f with
         | Some (parameter, body) -> enter ((Ident.unique_name parameter, value argument) :: known) body rest
         | None -> raise Unknown)
      | _ -> raise Unknown
    in
    enter [] (bound id) arguments
  | Texp_array (_ :: _) when named -> raise Unknown
  | Texp_record { fields; _ } when named && Array.exists (fun ((l : Types.label_description), _) -> l.lbl_mut = Mutable) fields ->
    raise Unknown
  | Texp_constant (Const_int n) -> Obj.repr n
  | Texp_constant (Const_char c) -> Obj.repr c
  | Texp_constant (Const_string (s, _, _)) -> Obj.repr s
  | Texp_constant (Const_float f) -> Obj.repr (float_of_string f)
  | Texp_constant (Const_int32 n) -> Obj.repr n
  | Texp_constant (Const_int64 n) -> Obj.repr n
  | Texp_constant (Const_nativeint n) -> Obj.repr n
  | Texp_construct (_, { cstr_inlined = Some _; _ }, _) -> raise Unknown
  | Texp_construct (_, { cstr_tag = Cstr_constant n; _ }, []) -> Obj.repr n
  | Texp_construct (_, { cstr_tag = Cstr_block tag; _ }, arguments) -> block tag (List.map value arguments)
  | Texp_construct (_, { cstr_tag = Cstr_unboxed; _ }, [ argument ]) -> value argument
  | Texp_tuple parts -> block 0 (List.map value parts)
  | Texp_array parts -> Obj.repr (Array.of_list (List.map value parts))
  | Texp_variant (label, None) -> Obj.repr (Btype.hash_variant label)
  | Texp_variant (label, Some argument) -> block 0 [ Obj.repr (Btype.hash_variant label); value argument ]
  | Texp_record { fields; representation; extended_expression = None } ->
    let field = function _, Typedtree.Overridden (_, e) -> value e | _ -> raise Unknown in
    let values = List.map field (Array.to_list fields) in
    (match representation with
     | Record_regular -> block 0 values
     | Record_float -> Obj.repr (Array.of_list values)
     | _ -> raise Unknown)
  | Texp_apply ({ exp_desc = Texp_ident (_, { txt = Lident name; _ }, vd); _ }, arguments)
    when Compiler.home vd = Some "Stdlib" ->
    work_out name (List.map (function _, Some e -> value e | _ -> raise Unknown) arguments)
  | _ -> raise Unknown

and bound id =
  match Hashtbl.find_opt bindings (Ident.unique_name id) with Some e -> e | None -> raise Unknown

and block tag values =
  let made = Obj.new_block tag (List.length values) in
  List.iteri (Obj.set_field made) values;
  made

(* The digests of the values that are known, by number. None at all where tests compare by an [=] of another meaning. *)
let known structure =
  let found = ref [] and sure = ref true in
  Hashtbl.reset bindings;
  work := 0;
  let value_binding self (b : Typedtree.value_binding) =
    Option.iter (fun id -> Hashtbl.replace bindings (Ident.unique_name id) b.vb_expr) (Compiler.variable b.vb_pat);
    Tast_iterator.default_iterator.value_binding self b in
  let expr self (e : Typedtree.expression) =
    (match e.exp_desc with
     | Texp_ident (_, _, { val_kind = Val_prim { prim_name = "%equal"; _ }; _ }) -> ()
     | _ -> if is_equal e.exp_attributes then sure := false);
    (match number_of e.exp_attributes with
     | Some n -> (match Gradus_value.text (value_of ~known:[] ~named:false e) with
       | Some text -> found := (n, Digest.to_hex (Digest.string text)) :: !found
       | None -> ()
       | exception _ -> ())
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
    | Some n when List.mem_assoc n known ->
      let number = { e with exp_desc = Texp_constant (Const_int n); exp_attributes = []; exp_extra = [] } in
      { number with exp_desc = Texp_apply (ident "handle" e, [ Nolabel, Some number ]) }
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
    | Some n when List.mem_assoc n known ->
      Ast_helper.Exp.apply (ident "handle") [ Nolabel, Ast_helper.Exp.constant (Ast_helper.Const.int n) ]
    | _ -> if is_equal e.pexp_attributes then ident "equal" else default.expr self e
  in
  let mapper = { default with expr } in
  mapper.structure mapper items

(* What the referee is told of them: "<group, 4><digest, 32>", in the order of their numbers; a group of ffff is none. *)
let told m known =
  let line n group =
    match List.assoc_opt n known with
    | Some digest -> Printf.sprintf "%04x%s" group digest
    | None -> "ffff" ^ String.make 32 '-'
  in
  List.mapi line (List.rev m.groups)
