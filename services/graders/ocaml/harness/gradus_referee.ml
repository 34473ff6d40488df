(* The process beside the one that runs an answer. It alone holds the secret and the report: the answer's process, however
   much of its own memory an answer controls, can only say over a pipe what this one asked for.
     child:   start | ready | at <id> | end | <token> [fail|raise|stack|skip] | plan <n> | step | done
     referee: <release>, one for each test and at [end]; a release names the test to run and its two tokens, passed and failed
   A release is 32 digits: the number of a test (12), and the tokens (10 each). Numbers of the sheet are decoys, which fail
   when they are run as all tests are; any other number is the test that the child stands at. Decoys come before tests at
   random, and only this process knows where. A word that was not due is a forged report, and ends the child. *)

external read : int -> Bytes.t -> int -> int -> int = "gradus_read"
external write : int -> Bytes.t -> int -> int -> bool = "gradus_write"
external await : int -> int -> bool = "gradus_await"

(* What the front says of compiled tests: "<suite> <total>\n", the numbers of the decoys, and after that the code.
   [suite]: tests are numbered while they run. *)
type sheet = { bytes : Bytes.t; suite : bool; total : int; decoys_at : int; code_at : int }

let decoys = 32
let digits = 12 (* of the number of a test *)

let sheet_of bytes =
  let line_end = Bytes.index bytes '\n' in
  match String.split_on_char ' ' (Bytes.sub_string bytes 0 line_end) with
  | [ suite; total ] ->
    { bytes; suite = bool_of_string suite; total = int_of_string total; decoys_at = line_end + 1;
      code_at = line_end + 1 + (decoys * digits) }
  | _ -> failwith "there is no sheet of the tests"

type child = { pid : int (* 0: it may wait *); said : int; told : int (* descriptors *) }

exception Forged
exception Silent (* the child ended, or waits for what does not come *)

(* ------------------------------------------------------------------------------------------------------ report *)

(* Less than the limit of the box (1024 kB), past which it is killed with all that it reported. *)
let max_report = 1_048_000

type report = {
  secret : string;
  text : Buffer.t;
  at_once : bool; (* what is left of it counts if this process ends *)
  mutable written : int;
  mutable too_long : bool;
  mutable forged : bool;
}

let report ~secret ~at_once =
  { secret; text = Buffer.create 1024; at_once; written = 0; too_long = false; forged = false }

let flush r =
  ignore (write 3 (Buffer.to_bytes r.text) 0 (Buffer.length r.text));
  Buffer.clear r.text

let sign r words =
  let line = String.concat " " (r.secret :: words) ^ "\n" in
  if not r.too_long then begin
    r.too_long <- r.written + String.length line > max_report;
    let line = if r.too_long then r.secret ^ " limit\n" else line in
    r.written <- r.written + String.length line;
    Buffer.add_string r.text line;
    if r.at_once then flush r
  end

(* ------------------------------------------------------------------------------------------------------- lines *)

let max_line = 256
let chunk = Bytes.create 4096

type lines = { child : child; mutable from : int; mutable till : int }

let next_line l =
  let line = Buffer.create 64 in
  let rec go () =
    if l.from = l.till then begin
      if not (l.child.pid = 0 || await l.child.said l.child.pid) then raise Silent;
      l.from <- 0;
      l.till <- read l.child.said chunk 0 (Bytes.length chunk);
      if l.till = 0 then raise Silent
    end;
    match Bytes.index_from chunk l.from '\n' with
    | till when till < l.till -> take till; l.from <- till + 1
    | _ | exception Not_found -> take l.till; l.from <- l.till; go ()
  and take till =
    Buffer.add_subbytes line chunk l.from (till - l.from);
    if Buffer.length line > max_line then raise Forged
  in
  go ();
  Buffer.contents line

(* ------------------------------------------------------------------------------------------------------- tests *)

type turn = { id : int (* -1: a decoy *); passed : string; failed : string }

(* [code]: whether the child waits for the tests. Ends when the child has nothing to say any more, or may not. *)
let referee report sheet child ~code =
  let lines = { child; from = 0; till = 0 } in
  let drawn = ref 0 in
  let draw () = incr drawn; Digest.to_hex (Digest.string (report.secret ^ string_of_int !drawn)) in
  (* an order of the decoys, and how many of them come before each test *)
  let seed = ref (int_of_string ("0x" ^ String.sub (draw ()) 0 15)) in
  let below n = seed := (!seed * 25214903917) + 11; (!seed lsr 20) mod n in
  let order = Array.init decoys Fun.id in
  let before = Array.make (sheet.total + 1) 0 in
  for i = decoys - 1 downto 0 do
    let j = below (i + 1) and other = order.(i) in
    order.(i) <- order.(j);
    order.(j) <- other;
    let slot = below (sheet.total + 1) in
    before.(slot) <- before.(slot) + 1
  done;
  let released = ref 0 and slot = ref 0 and due = ref 0 in
  let turns = ref [] and ready = ref false and ended = ref false in
  let over = "over" in
  let send text = if not (write child.told (Bytes.unsafe_of_string text) 0 (String.length text)) then raise Silent in
  let release id =
    let drawn = draw () in
    let number, id =
      if !due > 0 then begin
        decr due;
        incr released;
        Bytes.sub_string sheet.bytes (sheet.decoys_at + (digits * order.(!released - 1))) digits, -1
      end
      else String.sub drawn 0 digits, id
    in
    turns := { id; passed = String.sub drawn digits 10; failed = String.sub drawn (digits + 10) 10 } :: !turns;
    send (number ^ String.sub drawn digits 20 ^ "\n")
  in
  let pending = ref [] in (* what the child stands at: innermost first *)
  let next () =
    match !pending with
    | -1 :: _ when !due = 0 -> pending := List.tl !pending; ended := true; send (over ^ "\n")
    | id :: _ -> release id
    | [] -> raise Forged
  in
  let stand id count =
    (match !turns with { id = -1; _ } :: _ -> raise Forged | _ -> ());
    if !ended || not !ready then raise Forged;
    due := count;
    pending := id :: !pending;
    next ()
  in
  let verdict id why =
    match !pending with
    | _ :: outer -> pending := outer; sign report [ why; string_of_int id ]
    | [] -> raise Forged
  in
  let number text =
    match int_of_string_opt text with Some n when n >= 0 && n < 1_000_000_000 -> n | _ -> raise Forged in
  let outcomes = [ "fail"; "raise"; "stack" ] in
  let heard words =
    match words, !turns with
    | [ "start" ], _ -> sign report [ "start" ]
    | [ "ready" ], _ when not !ready ->
      ready := true;
      if code then begin
        let length = Bytes.length sheet.bytes - sheet.code_at in
        send (Printf.sprintf "%d\n" length);
        if not (write child.told sheet.bytes sheet.code_at length) then raise Silent
      end
    | [ "at"; id ], _ ->
      let id = number id and here = min !slot sheet.total in
      if id >= sheet.total && not sheet.suite then raise Forged;
      incr slot;
      let count = before.(here) in
      before.(here) <- 0;
      stand id count
    | [ "end" ], [] -> stand (-1) (decoys - !released)
    | [ "plan"; n ], _ when sheet.suite -> sign report [ "plan"; string_of_int (number n) ]
    | [ "step" ], [] -> sign report [ "step" ]
    | [ "done" ], [] when !ended -> sign report [ "done" ]
    | [ token; why ], { id = -1; failed; _ } :: outer when token = failed && why = "fail" -> turns := outer; next ()
    | [ token ], { id; passed; _ } :: outer when token = passed && id >= 0 -> turns := outer; verdict id "ok"
    | [ token; why ], { id; failed; _ } :: outer
      when token = failed && id >= 0 && (List.mem why outcomes || (why = "skip" && sheet.suite)) ->
      turns := outer;
      verdict id why
    | _ -> raise Forged
  in
  (try while true do heard (String.split_on_char ' ' (next_line lines)) done with
   | Silent -> ()
   | Forged -> report.forged <- true; sign report [ "forged" ]);
  flush report
