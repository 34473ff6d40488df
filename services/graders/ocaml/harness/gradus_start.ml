(* Linked right after the harness in programs of their own: the first line of standard input says the secret, the limit and
   whether the program has packages. It is read through a channel that answers cannot name and that is closed before they
   start; by then the program cannot open a file any more, its own least of all. *)

external open_descriptor_in : int -> in_channel = "caml_ml_open_descriptor_in"
external seal : int -> bool -> unit = "gradus_seal"

let () =
  let channel = open_descriptor_in 0 in
  let said = try input_line channel with End_of_file -> "" in
  close_in channel;
  match String.split_on_char ' ' said with
  | [ secret; cpu_ms; packages ] ->
    seal (int_of_string cpu_ms) (bool_of_string packages);
    Gradus_harness.start secret
  | _ -> failwith "the program was started without a secret"
