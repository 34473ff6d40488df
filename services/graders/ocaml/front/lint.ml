(* Tests that pass for wrong answers: those that compute what they expect from an argument which the answer had before, and
   may have changed. No verdict depends on it; the author of the task is told. *)

open Typedtree

let containers = [ "Stdlib.ref"; "Stdlib.Hashtbl.t"; "Stdlib.Queue.t"; "Stdlib.Stack.t"; "Stdlib.Buffer.t" ]

let is_mutable (e : expression) =
  let t = match Ctype.expand_head e.exp_env e.exp_type with t -> t | exception _ -> e.exp_type in
  match Compiler.desc t with
  | Tconstr (path, _, _) -> Path.same path Predef.path_array || Path.same path Predef.path_bytes || List.mem (Path.name path) containers
  | _ -> false

(* The variables that an expression mentions, with their places; not those of which it only takes the length. *)
let variables e =
  let found = ref [] in
  let expr self (e : expression) =
    match e.exp_desc with
    | Texp_ident (Pident id, _, _) -> found := (id, e) :: !found
    | Texp_apply ({ exp_desc = Texp_ident (path, _, _); _ }, _) when Path.last path = "length" -> ()
    | _ -> Tast_iterator.default_iterator.expr self e in
  let iterator = { Tast_iterator.default_iterator with expr } in
  iterator.expr iterator e;
  !found

let arguments list = List.filter_map snd list

(* The mutable variables that an expression gives to the answer. *)
let given ~unit e =
  let found = ref [] in
  let expr self (e : expression) =
    (match e.exp_desc with
     | Texp_apply ({ exp_desc = Texp_ident (_, _, vd); _ }, list) when Compiler.home vd = Some unit ->
       found := List.filter (fun (_, e) -> is_mutable e) (List.concat_map variables (arguments list)) @ !found
     | _ -> ());
    Tast_iterator.default_iterator.expr self e in
  let iterator = { Tast_iterator.default_iterator with expr } in
  iterator.expr iterator e;
  List.map fst !found

let comparing = [ "="; "<>"; "equal"; "assert_equal"; "compare" ]

let warning (id, (e : expression)) =
  Printf.sprintf "line %d: what the tests expect is computed from %s after the answer had it, which may have changed it: compute it before"
    e.exp_loc.loc_start.pos_lnum (Ident.name id)

(* [unit]: the answer's own compilation unit. *)
let warnings ~unit structure =
  let results = ref [] and found = ref [] in
  let value_binding self b =
    Tast_iterator.default_iterator.value_binding self b;
    match given ~unit b.vb_expr with
    | [] -> ()
    | given -> List.iter (fun id -> results := (id, given) :: !results) (pat_bound_idents b.vb_pat) in
  let compared a b =
    let of_result (id, _) = Option.value (List.assoc_opt id !results) ~default:[] in
    let a = variables a and b = variables b in
    let after a b = List.filter (fun (id, _) -> List.exists (Ident.same id) (List.concat_map of_result a)) b in
    let is_result (id, _) = List.mem_assoc id !results in
    if not (List.exists is_result b) then found := after a b @ !found;
    if not (List.exists is_result a) then found := after b a @ !found in
  let expr self (e : expression) =
    (match e.exp_desc with
     | Texp_apply ({ exp_desc = Texp_ident (path, _, _); _ }, list) when List.mem (Path.last path) comparing ->
       (match arguments (List.filter (fun (label, _) -> label = Asttypes.Nolabel) list) with
        | [ a; b ] -> compared a b
        | _ -> ())
     | _ -> ());
    Tast_iterator.default_iterator.expr self e in
  let iterator = { Tast_iterator.default_iterator with expr; value_binding } in
  iterator.structure iterator structure;
  List.sort_uniq String.compare (List.map warning !found)
