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

(* Of the type that [load] takes, which is not the same in all versions of OCaml. *)
let code_of bytes = Marshal.from_bytes bytes 0

(* Not [stdin]: answers can name that one, and seek back in what it has buffered. And no channel: its buffer, which nothing
   wipes, would hold the tests while the answer runs. *)
let requests = Unix.dup Unix.stdin
let number (descriptor : Unix.file_descr) : int = Obj.magic descriptor
let report : Unix.file_descr = Obj.magic 3

let read_into bytes length =
  let rec go from =
    if from < length then
      match Gradus_referee.read (number requests) bytes from (length - from) with
      | 0 -> raise End_of_file
      | n -> go (from + n)
  in
  go 0

(* Used again for each request, as nothing collects what is no longer used; wiped before a child can be there that may not see it. *)
type memory = { mutable bytes : Bytes.t; mutable used : int }

let memory () = { bytes = Bytes.create 65536; used = 0 }
let answers = memory () and tests = memory ()

let wipe memory =
  Bytes.fill memory.bytes 0 memory.used '\000';
  memory.used <- 0

let read_to memory length =
  wipe memory;
  if length > Bytes.length memory.bytes then memory.bytes <- Bytes.create (2 * length);
  memory.used <- length;
  read_into memory.bytes length

let read_head () =
  let head = Bytes.create 48 in
  read_into head 48;
  String.split_on_char ' ' (String.trim (Bytes.unsafe_to_string head))

let null = Unix.openfile "/dev/null" [ O_RDWR ] 0

let child limits ~told ~said =
  List.iter (fun fd -> Unix.dup2 null fd) [ Unix.stdin; Unix.stdout; Unix.stderr ];
  Confine.enter limits ~may_open:false;
  Gradus_harness.start ~told ~said;
  (match load (code_of answers.bytes) with
   | () ->
     let code = Gradus_harness.code_of_tests () in
     let loaded = code_of code in
     Bytes.fill code 0 (Bytes.length code) '\000';
     load loaded
   | exception _ -> ());
  Unix._exit 0

(* Nothing that the child may not see is read before the child is there, and nothing of it is left for the next. *)
let beside child =
  match read_head () with
  | secret :: length :: shows ->
    let length = int_of_string length in
    read_to tests length;
    let report = Gradus_referee.report ~secret ~at_once:false ~shows:(shows = [ "show" ]) in
    Gradus_referee.referee report (Gradus_referee.sheet_of tests.bytes ~length) child;
    wipe tests
  | _ -> failwith "a request without a secret"

let serve () =
  match List.map int_of_string (read_head ()) with
  | [ cpu_ms; memory_mb; length ] ->
    read_to answers length;
    let before = Confine.microseconds () in
    let said, up = Unix.pipe () and down, told = Unix.pipe () in
    (match Confine.fork () with
     | 0 ->
       List.iter Unix.close [ requests; report; said; told ];
       child { cpu_ms; memory_mb } ~told:(number down) ~said:(number up)
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
  Meta.realloc_global_data (Array.length (Meta.global_data ()) + 512); (* room for an answer's, which no child has to make *)
  clear_new_memory ();
  Sys.set_signal Sys.sigpipe Signal_ignore;
  Gc.compact ();
  Gc.set { (Gc.get ()) with max_overhead = 1000000 }; (* never again: what is wiped must not have been moved *)
  (* 32 MB: few tests allocate so much that a collection runs. OCaml 5 would set as much aside for each of 128 domains. *)
  if Sys.ocaml_version < "5" then Gc.set { (Gc.get ()) with minor_heap_size = 4194304 };
  Confine.settle 256;
  print_string "0 ready 0 0\n";
  flush stdout;
  try while true do serve () done with End_of_file -> ()
