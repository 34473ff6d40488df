(* Runs linked nothing but a runtime: one request on standard input, a child for it, its ending on standard output; again.
   A request is "<cpu ms> <memory MB> <secret> <length of answer> <length of tests>\n" and the two pieces of bytecode.
   In the child the answer is initialised first, while the tests are not loaded; nothing can be opened any more. *)

external clear_new_memory : unit -> unit = "gradus_clear_new_memory"

let load (code, relocations) =
  Symtable.patch_object code relocations;
  Symtable.check_global_initialized relocations;
  Symtable.update_global_table ();
  let _, closure = Meta.reify_bytecode code [||] None in
  ignore (closure ())

(* Of the type that [load] takes, which is not the same in all versions of OCaml. The bytes are wiped: they are the tests. *)
let code_of bytes =
  let code = Marshal.from_bytes bytes 0 in
  Bytes.fill bytes 0 (Bytes.length bytes) '\000';
  code

(* Not [stdin]: answers can name that one, and seek back in what it has buffered. And no channel: its buffer, which nothing
   wipes, would hold the tests while the answer runs. *)
let requests = Unix.dup Unix.stdin

let read_exactly length =
  let bytes = Bytes.create length in
  let rec go from =
    if from < length then
      match Unix.read requests bytes from (length - from) with
      | 0 -> raise End_of_file
      | n -> go (from + n)
  in
  go 0;
  bytes

let read_line () =
  let b = Buffer.create 100 in
  let rec go () =
    match Bytes.get (read_exactly 1) 0 with
    | '\n' -> Buffer.contents b
    | c -> Buffer.add_char b c; go ()
  in
  go ()

let null = Unix.openfile "/dev/null" [ O_RDWR ] 0

let child limits secret answer tests =
  List.iter (fun fd -> Unix.dup2 null fd) [ Unix.stdin; Unix.stdout; Unix.stderr ];
  Confine.enter limits ~may_open:false;
  Gradus_harness.start secret;
  (match load answer with () -> load tests | exception _ -> ());
  Unix._exit 0

let serve () =
  let header = read_line () in
  Scanf.sscanf header "%d %d %s %d %d" (fun cpu_ms memory_mb secret answer_length tests_length ->
      let answer = code_of (read_exactly answer_length) in
      let tests = code_of (read_exactly tests_length) in
      let before = Confine.microseconds () in
      match Unix.fork () with
      | 0 -> child { cpu_ms; memory_mb } secret answer tests
      | pid ->
        let ending = Confine.finish pid ~before in
        let clean = Confine.nobody_left () in
        Printf.printf "0 %s %d\n%!" ending.how ending.cpu_us;
        if not clean then exit 3)

let () =
  if Unix.getpid () <> 1 then failwith "the runner runs as PID 1 of a box, nowhere else";
  ignore (Symtable.init_toplevel ());
  clear_new_memory ();
  Gc.compact ();
  print_string "0 ready 0 0\n";
  flush stdout;
  try while true do serve () done with End_of_file -> ()
