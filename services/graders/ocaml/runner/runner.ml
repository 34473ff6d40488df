(* Runs linked nothing but a runtime: one request on standard input, a child for it, its ending on standard output; again.
   A request is "<cpu ms> <memory MB> <length>\n" and the answer's bytecode, and then "<secret> <length>\n" and the tests'
   sheet. In the child the answer is initialised first; it is there before the secret and the tests are read, and gets the
   tests' code from the referee, over a pipe. *)

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
let number (descriptor : Unix.file_descr) : int = Obj.magic descriptor
let report : Unix.file_descr = Obj.magic 3

let read_exactly length =
  let bytes = Bytes.create length in
  let rec go from =
    if from < length then
      match Gradus_referee.read (number requests) bytes from (length - from) with
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

let child limits answer ~told ~said =
  List.iter (fun fd -> Unix.dup2 null fd) [ Unix.stdin; Unix.stdout; Unix.stderr ];
  Confine.enter limits ~may_open:false;
  Gradus_harness.start ~told ~said;
  (match load answer with () -> load (code_of (Gradus_harness.code_of_tests ())) | exception _ -> ());
  Unix._exit 0

(* Nothing that the child may not see is read before the child is there, and nothing of it is left for the next. *)
let beside child =
  Scanf.sscanf (read_line ()) "%s %d" (fun secret tests_length ->
      let tests = read_exactly tests_length in
      let report = Gradus_referee.report ~secret ~at_once:false in
      Gradus_referee.referee report (Gradus_referee.sheet_of tests) child ~code:true;
      Bytes.fill tests 0 tests_length '\000')

let serve () =
  Scanf.sscanf (read_line ()) "%d %d %d" (fun cpu_ms memory_mb answer_length ->
      let answer = code_of (read_exactly answer_length) in
      let before = Confine.microseconds () in
      let said, up = Unix.pipe () and down, told = Unix.pipe () in
      match Unix.fork () with
      | 0 ->
        List.iter Unix.close [ requests; report; said; told ];
        child { cpu_ms; memory_mb } answer ~told:(number down) ~said:(number up)
      | pid ->
        List.iter Unix.close [ up; down ];
        beside { pid; said = number said; told = number told };
        List.iter Unix.close [ said; told ];
        (try Unix.kill pid Sys.sigkill with Unix.Unix_error (ESRCH, _, _) -> ());
        let ending = Confine.finish pid ~before in
        let clean = Confine.nobody_left () in
        Printf.printf "0 %s %d\n%!" ending.how ending.cpu_us;
        if not clean then exit 3)

let () =
  if Unix.getpid () <> 1 then failwith "the runner runs as PID 1 of a box, nowhere else";
  ignore (Symtable.init_toplevel ());
  clear_new_memory ();
  Sys.set_signal Sys.sigpipe Signal_ignore;
  Gc.compact ();
  Gc.set { (Gc.get ()) with max_overhead = 1000000 }; (* never again: what is wiped must not have been moved *)
  print_string "0 ready 0 0\n";
  flush stdout;
  try while true do serve () done with End_of_file -> ()
