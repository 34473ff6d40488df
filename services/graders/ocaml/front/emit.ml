(* From typed trees to bytecode in memory, which the runner loads. Writes no file. *)

(* what the runner gets: bytecode, and the places in it that only the runner's symbol table can fill *)
type code = Misc.LongString.t * (Cmo_format.reloc_info * int) list

let unit_id name = Ident.create_persistent (String.capitalize_ascii name)

let code_of name (structure : Typedtree.structure) coercion : code =
  Translmod.reset ();
  Env.reset_required_globals ();
  let program = Translmod.transl_implementation (String.capitalize_ascii name) (structure, coercion) in
  let init, functions = Bytegen.compile_phrase (Simplif.simplify_lambda program.Lambda.code) in
  let code, relocations, _ = Emitcode.to_memory init functions in
  code, relocations

let to_string (code : code) = Marshal.to_string code []
