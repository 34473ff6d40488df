(* Runs linked nothing but a runtime: one request on standard input, a child for it, its ending on standard output; again.
   A request is "<cpu ms> <memory MB> <length>" and the answer's bytecode, and then "<secret> <length> [show]" and the tests' sheet;
   heads are padded with spaces to 48 bytes, as lines would have to be read byte by byte. In the child the answer is initialised first; it is there before the secret and the tests are read, and gets the
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

let read_head () = String.split_on_char ' ' (String.trim (Bytes.unsafe_to_string (read_exactly 48)))

let null = Unix.openfile "/dev/null" [ O_RDWR ] 0

let child limits answer ~told ~said =
  List.iter (fun fd -> Unix.dup2 null fd) [ Unix.stdin; Unix.stdout; Unix.stderr ];
  Confine.enter limits ~may_open:false;
  Gradus_harness.start ~told ~said;
  (match load answer with () -> load (code_of (Gradus_harness.code_of_tests ())) | exception _ -> ());
  Unix._exit 0

(* Nothing that the child may not see is read before the child is there, and nothing of it is left for the next. *)
let beside child =
  match read_head () with
  | secret :: length :: shows ->
    let tests = read_exactly (int_of_string length) in
    let report = Gradus_referee.report ~secret ~at_once:false ~shows:(shows = [ "show" ]) in
    Gradus_referee.referee report (Gradus_referee.sheet_of tests) child;
    Bytes.fill tests 0 (Bytes.length tests) '\000'
  | _ -> failwith "a request without a secret"

let serve () =
  match List.map int_of_string (read_head ()) with
  | [ cpu_ms; memory_mb; length ] ->
    let answer = code_of (read_exactly length) in
    let before = Confine.microseconds () in
    let said, up = Unix.pipe () and down, told = Unix.pipe () in
    (match Confine.fork () with
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
  | _ -> failwith "a request without limits"

let () =
  if Unix.getpid () <> 1 then failwith "the runner runs as PID 1 of a box, nowhere else";
  ignore (Symtable.init_toplevel ());
  clear_new_memory ();
  Sys.set_signal Sys.sigpipe Signal_ignore;
  Gc.compact ();
  Gc.set { (Gc.get ()) with max_overhead = 1000000; minor_heap_size = 1048576 }; (* never again: what is wiped must not have been moved *)
  Confine.settle 256;
  print_string "0 ready 0 0\n";
  flush stdout;
  try while true do serve () done with End_of_file -> ()
