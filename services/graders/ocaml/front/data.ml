(* What an expression of the typed tests stands for, where that can be worked out without the answer: constants, and what
   pure functions of the standard library and of the tests make of them. *)

exception Unknown

(* how much work that may be: tests can define data that grows with every name *)
let max_work = 100_000
let work = ref 0
let spend n = work := !work + abs n; if !work > max_work then raise Unknown

let bindings : (string, Typedtree.expression) Hashtbl.t = Hashtbl.create 64

let r = Obj.repr
let sized f n x = spend n; f n x

(* By unit and name: functions of values as the runtime has them, whatever their types are. *)
let library : (string * (string * Obj.t) list) list =
  [ "Stdlib",
    [ "~-", r ( ~- ); "~-.", r ( ~-. ); "+", r ( + ); "-", r ( - ); "*", r ( * ); "/", r ( / ); "mod", r ( mod ); "+.", r ( +. );
      "-.", r ( -. ); "*.", r ( *. ); "/.", r ( /. ); "**", r ( ** ); "^", r (fun a b -> spend (String.length a + String.length b); a ^ b);
      "@", r (fun a b -> spend (List.length a); a @ b); "lsl", r ( lsl ); "lsr", r ( lsr ); "asr", r ( asr ); "land", r ( land );
      "lor", r ( lor ); "lxor", r ( lxor ); "=", r ( = ); "<>", r ( <> ); "<", r ( < ); ">", r ( > ); "<=", r ( <= ); ">=", r ( >= );
      "compare", r compare; "min", r min; "max", r max; "not", r not; "succ", r succ; "pred", r pred; "abs", r abs; "fst", r fst; "snd", r snd;
      "float_of_int", r float_of_int; "float", r float; "sqrt", r sqrt; "atan", r atan; "string_of_int", r string_of_int;
      "max_int", r max_int; "min_int", r min_int; "infinity", r infinity; "neg_infinity", r neg_infinity ];
    "Stdlib__List",
    [ "init", r (sized List.init); "map", r List.map; "mapi", r List.mapi; "rev", r List.rev; "rev_map", r List.rev_map;
      "filter", r List.filter; "concat", r List.concat; "flatten", r List.flatten; "append", r List.append; "length", r List.length;
      "fold_left", r List.fold_left; "sort", r List.sort; "combine", r List.combine ];
    "Stdlib__Array",
    [ "init", r (sized Array.init); "make", r (sized Array.make); "map", r Array.map; "of_list", r Array.of_list; "to_list", r Array.to_list;
      "append", r Array.append; "make_matrix", r (fun n m x -> spend (n * m); Array.make_matrix n m x) ];
    "Stdlib__String",
    [ "make", r (sized String.make); "init", r (sized String.init); "concat", r (fun by parts ->
        spend (List.length parts * String.length by); List.iter (fun s -> spend (String.length s)) parts; String.concat by parts);
      "length", r String.length; "uppercase_ascii", r String.uppercase_ascii; "lowercase_ascii", r String.lowercase_ascii ];
    "Stdlib__Char", [ "chr", r Char.chr; "code", r Char.code ] ]

let of_library unit name = Option.bind (List.assoc_opt unit library) (List.assoc_opt name)

(* [named]: names that stand for data, or for functions that make it. *)
let rec is_data named (e : Parsetree.expression) =
  let is = is_data named in
  let simple (l, e) = l = Asttypes.Nolabel && is e in
  match e.pexp_desc with
  | Pexp_constant _ -> true
  | Pexp_ident { txt = Lident name; _ } -> named name || of_library "Stdlib" name <> None
  | Pexp_ident { txt = Ldot (Lident m, name); _ } -> of_library ("Stdlib__" ^ m) name <> None
  | Pexp_construct (_, argument) | Pexp_variant (_, argument) -> Option.fold ~none:true ~some:is argument
  | Pexp_tuple parts | Pexp_array parts -> List.for_all is parts
  | Pexp_record (fields, None) -> List.for_all (fun (_, e) -> is e) fields
  | Pexp_constraint (e, _) -> is e
  | Pexp_ifthenelse (a, b, Some c) -> is a && is b && is c
  | Pexp_apply (f, arguments) -> is f && List.for_all simple arguments
  | _ ->
    match Compiler.parameter e with
    | Some (Nolabel, None, { ppat_desc = Ppat_var { txt; _ }; _ }, body) -> is_data (fun n -> n = txt || named n) body
    | Some (Nolabel, None, { ppat_desc = Ppat_any; _ }, body) -> is body
    | _ -> false

(* [known]: the parameters of the functions around it; [named]: it is what a name stands for, so that it may have been
   changed since if that is possible at all. *)
let rec value_of ~known ~named (e : Typedtree.expression) =
  let value = value_of ~known ~named in
  spend 1;
  match e.exp_desc with
  | Texp_ident (Pident id, _, _) ->
    (match List.assoc_opt (Ident.unique_name id) known with
     | Some value -> value
     | None ->
       let e = bound id in
       value_of ~known:[] ~named:(named || Compiler.typed_parameter e = None) e)
  | Texp_ident (_, { txt = Lident name | Ldot (_, name); _ }, vd) ->
    (match Compiler.home vd with
     | Some ("Stdlib__Array") when named -> raise Unknown
     | Some unit -> (match of_library unit name with Some f -> f | None -> raise Unknown)
     | None -> raise Unknown)
  | Texp_apply (f, arguments) ->
    let argument = function Asttypes.Nolabel, Some e -> value e | _ -> raise Unknown in
    let arguments = List.map argument arguments in
    List.fold_left (fun f a -> (Obj.obj f : Obj.t -> Obj.t) a) (value f) arguments
  | Texp_ifthenelse (condition, a, Some b) -> if (Obj.obj (value condition) : bool) then value a else value b
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
  | _ ->
    match Compiler.typed_parameter e with
    | Some (Some id, body) -> Obj.repr (fun v -> value_of ~known:((Ident.unique_name id, v) :: known) ~named body)
    | Some (None, body) -> Obj.repr (fun (_ : Obj.t) -> value_of ~known ~named body)
    | None -> raise Unknown

and bound id =
  match Hashtbl.find_opt bindings (Ident.unique_name id) with Some e -> e | None -> raise Unknown

and block tag values =
  let made = Obj.new_block tag (List.length values) in
  List.iteri (Obj.set_field made) values;
  made
