(* The compiler's side of the OCaml grader, in a box: `answer` and `tests` serve one request on standard input and reply on
   descriptor 3; `serve` is the warm compile server. Judges nothing: every reply is facts. `own FILE...` and `of_tests FILE...`
   are steps of the build: they link files to a library of their own. *)

external open_descriptor_out : int -> out_channel = "caml_ml_open_descriptor_out"

let read_all ic =
  let b = Buffer.create 65536 in
  (try while true do Buffer.add_channel b ic 1 done with End_of_file -> ());
  Buffer.contents b

let once work =
  Sys.chdir Cold.work;
  let reply = match work (Request.of_sections (Wire.sections_of (read_all stdin))) with
    | sections -> sections
    | exception Request.Broken why -> [ "broken", why ] in
  let oc = open_descriptor_out 3 in
  output_string oc (Wire.text_of reply);
  close_out oc

let rename change = Array.iteri (fun i file -> if i > 1 then Private.rename change file) Sys.argv

let () =
  match Sys.argv.(1) with
  | "answer" -> once Cold.answer
  | "tests" -> once Cold.tests
  | "serve" when Unix.getpid () = 1 -> Warm.serve ~view:Sys.argv.(2)
  | "serve" -> failwith "the compile server runs as PID 1 of a box, nowhere else"
  | "own" -> rename Private.own
  | "of_tests" -> rename Private.of_tests
  | other -> failwith ("no command " ^ other)
