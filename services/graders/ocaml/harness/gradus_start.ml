(* Linked right after the harness in programs of their own. The first line of standard input says the limit and whether the
   program has packages. Then the referee parts from the process that runs the answer, and reads what only it may know: the
   secret and the sheet of the tests. The answer starts when its process cannot open a file any more. *)

external seal : int -> bool -> unit = "gradus_seal"
external part : unit -> int * int * int = "gradus_part"
external end_as : int -> bool -> unit = "gradus_end_as"

let read_byte () =
  let byte = Bytes.create 1 in
  if Gradus_referee.read 0 byte 0 1 = 0 then failwith "the program was started without a secret";
  Bytes.get byte 0

let rec read_line read = match read () with '\n' -> "" | c -> String.make 1 c ^ read_line read

let rec read_rest () =
  let bytes = Bytes.create 65536 in
  match Gradus_referee.read 0 bytes 0 65536 with
  | 0 -> Bytes.empty
  | n -> Bytes.cat (Bytes.sub bytes 0 n) (read_rest ())

let () =
  match String.split_on_char ' ' (read_line read_byte) with
  | [ cpu_ms; packages ] ->
    (match part () with
     | 0, told, said ->
       seal (int_of_string cpu_ms) (bool_of_string packages);
       Gradus_harness.start ~told ~said
     | pid, said, told ->
       let words = String.split_on_char ' ' (read_line read_byte) in
       let report = Gradus_referee.report ~secret:(List.hd words) ~at_once:true ~shows:(List.tl words = [ "show" ]) in
       let sheet = read_rest () in
       Gradus_referee.referee report (Gradus_referee.sheet_of sheet ~length:(Bytes.length sheet)) { pid = 0; said; told };
       end_as pid (report.forged || report.too_long))
  | _ -> failwith "the program was started without a limit"
