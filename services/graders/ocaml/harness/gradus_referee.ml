(* The process beside the one that runs an answer. It alone holds the secret and the report: the answer's process, however
   much of its own memory an answer controls, can only say over a pipe what this one asked for.
     child:   start | ready | at <id> | value <n> <text> | end | <token> [fail|raise|stack|skip] | plan <n> | step | done
     referee: <release>, one for each test and at [end]; a release names the test to run and its two tokens, passed and failed
   A release is 32 digits: the number of a test (12), and the tokens (10 each). Numbers of the sheet are decoys, which fail
   when they are run as all tests are; any other number is the test that the child stands at. Decoys come before tests at
   random, and only this process knows where. A word that was not due is a forged report, and ends the child. *)

external read : int -> Bytes.t -> int -> int -> int = "gradus_read"
external write : int -> Bytes.t -> int -> int -> bool = "gradus_write"
external read_from : int -> int -> Bytes.t -> int = "gradus_read_from"
external watch : bool -> unit = "gradus_watch"

(* What the front says of compiled tests: "<suite> <total> <values> <pairs>\n", of each value the group and what it is compared
   with, of each pair of a test and its twin the test, the numbers of the decoys, and after that the code. [suite]: tests are numbered while they run, and groups are the cases as written;
   otherwise groups are tests. *)
type sheet = { bytes : Bytes.t; suite : bool; total : int; groups : int array; pairs : (int * bool) array; values_at : int; decoys_at : int; code_at : int }

let no_group = 0xffff
let length_of_value = 37
let length_of_pair = 5

let decoys = 32
let digits = 12 (* of the number of a test *)

let sheet_of bytes =
  let line_end = Bytes.index bytes '\n' in
  match String.split_on_char ' ' (Bytes.sub_string bytes 0 line_end) with
  | [ suite; total; values; pairs ] ->
    let values = int_of_string values and pairs = int_of_string pairs and values_at = line_end + 1 in
    let group i = int_of_string ("0x" ^ Bytes.sub_string bytes (values_at + (i * length_of_value)) 4) in
    let pairs_at = values_at + (values * length_of_value) in
    let pair i =
      let at = pairs_at + (i * length_of_pair) in
      int_of_string ("0x" ^ Bytes.sub_string bytes at 4), Bytes.get bytes (at + 4) = '!' in
    let decoys_at = pairs_at + (pairs * length_of_pair) in
    { bytes; suite = bool_of_string suite; total = int_of_string total; groups = Array.init values group;
      pairs = Array.init pairs pair; values_at; decoys_at;
      code_at = decoys_at + (decoys * digits) }
  | _ -> failwith "there is no sheet of the tests"

(* In place: no part of it is left anywhere else. Floats are compared with those of the sheet, as it says how. *)
let is_value sheet n text =
  let at = sheet.values_at + (n * length_of_value) + 5 in
  let float_of hex = Option.map Int64.float_of_bits (Int64.of_string_opt ("0x" ^ hex)) in
  let float at = Option.get (float_of (Bytes.sub_string sheet.bytes at 16)) in
  let within allowed =
    match float_of text with
    | Some got when String.length text = 16 -> allowed got (float at) (float (at + 16))
    | _ -> false in
  match Bytes.get sheet.bytes (at - 1) with
  | '=' ->
    let rec same i = i = 32 || (Bytes.get sheet.bytes (at + i) = text.[i] && same (i + 1)) in
    String.length text = 32 && same 0
  | '<' -> within (fun a b epsilon -> abs_float (a -. b) < epsilon)
  | '[' -> within (fun a b epsilon -> abs_float (a -. b) <= epsilon)
  | '~' -> within (fun a b epsilon -> Gradus_value.in_proportion ~epsilon a b)
  | _ -> false

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

let give_up r =
  if not r.too_long then Buffer.add_string r.text (r.secret ^ " limit\n");
  r.too_long <- true

let sign r words =
  let line = String.concat " " (r.secret :: words) ^ "\n" in
  if not r.too_long then begin
    r.written <- r.written + String.length line;
    if r.written > max_report then give_up r else Buffer.add_string r.text line;
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
      l.from <- 0;
      l.till <- read_from l.child.pid l.child.said chunk;
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

type turn = {
  id : int; (* -1: a decoy *)
  twin : bool; (* of the test [id] *)
  passed : string;
  failed : string;
  mutable right : int list; (* values *)
  mutable wrong : bool;
}

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
  let release (id, twin) =
    let drawn = draw () in
    let number, id =
      if !due > 0 then begin
        decr due;
        incr released;
        Bytes.sub_string sheet.bytes (sheet.decoys_at + (digits * order.(!released - 1))) digits, -1
      end
      else String.sub drawn 0 digits, id
    in
    turns := { id; twin; passed = String.sub drawn digits 10; failed = String.sub drawn (digits + 10) 10; right = []; wrong = false } :: !turns;
    send (number ^ String.sub drawn digits 20 ^ "\n")
  in
  let pending = ref [] in (* what the child stands at: innermost first *)
  let next () =
    match !pending with
    | (-1, _) :: _ when !due = 0 -> pending := List.tl !pending; ended := true; send (over ^ "\n")
    | id :: _ -> release id
    | [] -> raise Forged
  in
  let stand place count =
    (match !turns with { id = -1; _ } :: _ -> raise Forged | _ -> ());
    if !ended || not !ready then raise Forged;
    due := count;
    pending := place :: !pending;
    next ()
  in
  (* what passed and what ran, of tests that have a twin: no pure answer passes both, and both run *)
  let twins = Hashtbl.create 8 in
  Array.iteri (fun i (id, changed) ->
      Hashtbl.replace twins (Gradus_value.first_twin + i) (id, not changed);
      if changed then Hashtbl.replace twins id (id, true)) sheet.pairs;
  let seen = Hashtbl.create 8 in
  let verdict { id; twin; _ } why =
    (match !pending with
     | _ :: outer -> pending := outer; if not twin then sign report [ why; string_of_int id ]
     | [] -> raise Forged);
    if why = "ok" && Hashtbl.mem seen (id, not twin, "ok") then raise Forged;
    if why = "ok" then Hashtbl.replace seen (id, twin, "ok") ();
    Hashtbl.replace seen (id, twin, "ran") ()
  in
  let number text =
    match int_of_string_opt text with Some n when n >= 0 && n < 1_000_000_000 -> n | _ -> raise Forged in
  (* Of a suite it is not known which test is which case: cases that were never right leave no room for as many that pass. *)
  let members = Hashtbl.create 64 in
  Array.iteri (fun n group -> if group <> no_group then Hashtbl.add members group n) sheet.groups;
  let members group = Hashtbl.find_all members group in
  let groups = lazy (List.filter (( <> ) no_group) (List.sort_uniq compare (Array.to_list sheet.groups))) in
  let met = Hashtbl.create 16 and passed = ref [] and planned = ref sheet.total and skipped = ref 0 in
  let holds turn =
    let touched = if sheet.suite then List.map (fun n -> sheet.groups.(n)) turn.right else [ turn.id ] in
    let whole = List.for_all (fun g -> List.for_all (fun n -> List.mem n turn.right) (members g)) touched in
    let holds = whole && not turn.wrong in
    if holds && sheet.suite then List.iter (fun g -> Hashtbl.replace met g ()) touched;
    holds
  in
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
      let id, twin = Option.value (Hashtbl.find_opt twins id) ~default:(id, false) in
      if id >= sheet.total && not sheet.suite then raise Forged;
      incr slot;
      let count = before.(here) in
      before.(here) <- 0;
      stand (id, twin) count
    | [ "end" ], [] ->
      let unmatched (id, _) = Hashtbl.mem seen (id, false, "ok") && not (Hashtbl.mem seen (id, true, "ran")) in
      if Array.exists unmatched sheet.pairs then raise Forged;
      stand (-1, false) (decoys - !released)
    | [ "plan"; n ], _ when sheet.suite ->
      planned := max (number n) (List.length (Lazy.force groups));
      sign report [ "plan"; string_of_int !planned ];
      if !planned > max_report / String.length (report.secret ^ " ok 1000\n") then (give_up report; raise Silent)
    | [ "value"; n; digest ], ({ id; _ } as turn) :: _ when id >= 0 ->
      let n = number n in
      if n >= Array.length sheet.groups || sheet.groups.(n) = no_group then raise Forged;
      if is_value sheet n digest then turn.right <- n :: turn.right else turn.wrong <- true
    | [ "step" ], [] -> sign report [ "step" ]
    | [ "done" ], [] when !ended -> sign report [ "done" ]
    | [ token; why ], { id = -1; failed; _ } :: outer when token = failed && why = "fail" -> turns := outer; next ()
    | [ token ], ({ id; _ } as turn) :: outer when token = turn.passed && id >= 0 ->
      turns := outer;
      if holds turn then (passed := id :: !passed; verdict turn "ok") else verdict turn (if sheet.suite then "raise" else "fail")
    | [ token; "skip" ], ({ id; failed; _ } as turn) :: outer when token = failed && id >= 0 && sheet.suite ->
      turns := outer;
      incr skipped;
      verdict turn (if !skipped > !planned - List.length (Lazy.force groups) then "fail" else "skip")
    | [ token; why ], ({ id; failed; _ } as turn) :: outer
      when token = failed && id >= 0 && List.mem why outcomes ->
      turns := outer;
      verdict turn why
    | _ -> raise Forged
  in
  if child.pid > 0 then watch true;
  (try while true do heard (String.split_on_char ' ' (next_line lines)) done with
   | Silent -> ()
   | Forged -> report.forged <- true; sign report [ "forged" ]);
  if child.pid > 0 then watch false;
  if sheet.suite then begin
    let unmet = List.filter (fun g -> not (Hashtbl.mem met g)) (Lazy.force groups) in
    let passed = List.sort_uniq compare !passed in
    let many = List.length passed + List.length unmet - !planned in
    List.iteri (fun i id -> if i < many then sign report [ "fail"; string_of_int id ]) passed
  end;
  flush report
