(* Linked between the answer and the tests, whose code and constants were cut out of the program (front/cold.ml). They come
   only now, and take the places that the linker gave them. *)

#if VERSION >= 502
type program = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t

let program code = Bigarray.Array1.init Char C_layout (Bytes.length code) (Bytes.get code)
#else
type program = bytes array

let program code = [| code |]
#endif

external reify : program -> Obj.t array -> string option -> Obj.t * (unit -> Obj.t) = "caml_reify_bytecode"
external globals : unit -> Obj.t = "caml_get_global_data"

let () =
  let sent = Gradus_harness.code_of_tests () in
  let (code, constants : bytes * (int * Obj.t) list) = Marshal.from_bytes sent 0 in
  Bytes.fill sent 0 (Bytes.length sent) '\000';
  List.iter (fun (place, constant) -> Obj.set_field (globals ()) place constant) constants;
  let _, run = reify (program code) [||] None in
  ignore (run ())
