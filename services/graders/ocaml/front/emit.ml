(* From typed trees to bytecode in memory, which the runner loads. Writes no file. *)

let unit_id name = Ident.create_persistent (String.capitalize_ascii name)

(* what the runner gets; [library]: under which name a unit of the library is known *)
let code_of ?(library = Fun.id) name (structure : Typedtree.structure) coercion =
  Translmod.reset ();
  Env.reset_required_globals ();
  let program = Translmod.transl_implementation (String.capitalize_ascii name) (structure, coercion) in
  let code, relocations = Compiler.bytecode (Simplif.simplify_lambda program.Lambda.code) in
  Marshal.to_string (code, Private.relocations library relocations) []
