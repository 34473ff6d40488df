(* Three libraries in one program. What is ours, the runner and the harness, is linked to a copy of the standard library under
   other names, and tests are linked to another: no pointer of an answer leads to their code, so an answer that could write to
   all that it sees would still not change what they do. Exceptions, channels and formatters are the answer's in the tests'
   copy, too, as both have to agree on them (harness/gradus_unify.ml). *)

let starts prefix s = String.length s >= String.length prefix && String.sub s 0 (String.length prefix) = prefix

(* What is local to a domain is found by number, and effects by name: of these there is one in a program (OCaml 5). *)
let only_one = [ "Stdlib__Domain"; "Stdlib__Effect" ]
let of_library unit_ = (starts "Stdlib" unit_ || starts "Camlinternal" unit_) && not (List.mem unit_ only_one)
let own unit_ = if of_library unit_ then "Gradus_" ^ unit_ else unit_
let of_tests unit_ = if of_library unit_ then "Gradus_tests_" ^ unit_ else unit_

(* Classes of tests may inherit from the answer's, and formatters of OCaml 5 are local to a domain. *)
let shared = "CamlinternalOO" :: (if Compiler.version >= 500 then [ "Stdlib__Format" ] else [])
let used_by_tests unit_ = if List.mem unit_ shared then unit_ else of_tests unit_

(* A value with other strings in it. *)
let rec with_strings change value =
  if Obj.is_int value || Obj.tag value > Obj.string_tag then value
  else if Obj.tag value = Obj.string_tag then Obj.repr (change (Obj.obj value : string))
  else begin
    let copy = Obj.dup value in
    for i = 0 to Obj.size copy - 1 do Obj.set_field copy i (with_strings change (Obj.field copy i)) done;
    copy
  end

(* The constants of a program keep their strings. *)
let relocation change = function
  | Cmo_format.Reloc_literal _, _ as literal -> literal
  | other -> Obj.obj (with_strings change (Obj.repr other))

let relocations change = List.map (relocation change)

let compiled change (u : Cmo_format.compilation_unit) =
  let named : Cmo_format.compilation_unit = Obj.obj (with_strings change (Obj.repr { u with cu_reloc = [] })) in
  { named with cu_reloc = relocations change u.cu_reloc }

let is_copied (u : Cmo_format.compilation_unit) = not (List.mem (Obj.obj (Obj.repr u.cu_name) : string) only_one)

(* A file is its kind (12), where its description is (4), code, and the description. *)
let rename change file =
  let ic = open_in_bin file in
  let text = really_input_string ic (in_channel_length ic) in
  close_in ic;
  let at = Int32.to_int (String.get_int32_be text 12) in
  let oc = open_out_bin file in
  output_string oc (String.sub text 0 at);
  if starts Config.cma_magic_number text then begin
    let library : Cmo_format.library = Marshal.from_string text at in
    output_value oc { library with lib_units = List.map (compiled change) (List.filter is_copied library.lib_units) }
  end
  else output_value oc (compiled change (Marshal.from_string text at));
  close_out oc
