(* The process beside the one that runs an answer. It alone holds the secret and the report: the answer's process, however
   much of its own memory an answer controls, can only say over a pipe what this one asked for.
     child:   start | ready | at <id> | value <n> <digest> [<text>] | same <n> <n> | end | <token> [fail|raise|stack|skip] | plan <n> | step | done
     referee: a line for each test and at [end], which releases tests: names them, and two tokens of each, passed and failed
   A release is 32 digits: the number of a test (12), and the tokens (10 each). Numbers of the sheet are decoys, which fail
   when they are run as all tests are; any other number is the test that the child stands at. Each test is released among
   equally many decoys, the rest of them at [end], and only this process knows which of a line is the test. A word that was
   not due is a forged report, and ends the child. *)

external read : int -> Bytes.t -> int -> int -> int = "gradus_read"
external write : int -> Bytes.t -> int -> int -> bool = "gradus_write"
external read_from : int -> int -> Bytes.t -> int -> int = "gradus_read_from"
external watch : bool -> unit = "gradus_watch"
external draw : Bytes.t -> unit = "gradus_draw" (* hexadecimal digits, at random *)
external index : Bytes.t -> char -> int -> int -> int = "gradus_index" (* from, till; [till] where there is none *)

(* What the front says of compiled tests: "<suite> <total> <values> <pairs>\n", of each value the group and what it is compared
   with, of each pair of a test and its twin the test, the numbers of the decoys, and after that the code. [suite]: tests are
   numbered while they run, and groups are the cases as written; otherwise groups are tests. *)
type sheet = {
  bytes : Bytes.t;
  length : int;
  suite : bool;
  total : int;
  groups : int array;
  pairs : (int * bool) array;
  values_at : int;
  decoys : int;
  decoys_at : int;
  code_at : int;
}

let no_group = 0xffff
let length_of_value = 37
let length_of_pair = 5

(* so many that each of so many tests is released with one, and one is left for the end *)
let decoys total = max 32 (total + 1)
let digits = 12 (* of the number of a test *)
let length_of_token = 10
let length_of_release = digits + (2 * length_of_token)

(* In the first [length] of [bytes]. *)
let sheet_of bytes ~length =
  let line_end = Bytes.index bytes '\n' in
  match String.split_on_char ' ' (Bytes.sub_string bytes 0 line_end) with
  | [ suite; total; values; pairs ] ->
    let total = int_of_string total and values = int_of_string values and pairs = int_of_string pairs in
    let values_at = line_end + 1 in
    let group i = int_of_string ("0x" ^ Bytes.sub_string bytes (values_at + (i * length_of_value)) 4) in
    let pairs_at = values_at + (values * length_of_value) in
    let pair i =
      let at = pairs_at + (i * length_of_pair) in
      int_of_string ("0x" ^ Bytes.sub_string bytes at 4), Bytes.get bytes (at + 4) = '!' in
    let decoys = decoys (total + pairs) and decoys_at = pairs_at + (pairs * length_of_pair) in
    { bytes; length; suite = bool_of_string suite; total; groups = Array.init values group; pairs = Array.init pairs pair; values_at; decoys;
      decoys_at; code_at = decoys_at + (decoys * digits) }
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

(* as a child would tell it *)
let text_of_value sheet n =
  let at = sheet.values_at + (n * length_of_value) + 5 in
  Bytes.sub_string sheet.bytes at (if Bytes.get sheet.bytes (at - 1) = '=' then 32 else 16)

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
  shows : bool; (* values that are not the expected ones: all tests of this run are public *)
  mutable written : int;
  mutable too_long : bool;
  mutable forged : bool;
}

let report ~secret ~at_once ~shows =
  { secret; text = Buffer.create 1024; at_once; shows; written = 0; too_long = false; forged = false }

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

let rec next_line l =
  let end_ = index chunk '\n' l.from l.till in
  if end_ - l.from > max_line then raise Forged;
  if end_ < l.till then begin
    let line = Bytes.sub_string chunk l.from (end_ - l.from) in
    l.from <- end_ + 1;
    line
  end
  else begin
    Bytes.blit chunk l.from chunk 0 (l.till - l.from);
    l.till <- l.till - l.from;
    l.from <- 0;
    match read_from l.child.pid l.child.said chunk l.till with
    | 0 -> raise Silent
    | n -> l.till <- l.till + n; next_line l
  end

(* ------------------------------------------------------------------------------------------------------- tests *)

type turn = {
  id : int; (* -1: a decoy *)
  twin : bool; (* of the test [id] *)
  passed : string;
  failed : string;
  mutable right : int list; (* values *)
  mutable wrong : bool;
}

(* Ends when the child has nothing to say any more, or may not. *)
let referee report sheet child =
  let lines = { child; from = 0; till = 0 } in
  let drawn length = let digits = Bytes.create length in draw digits; digits in
  let below n digits at = int_of_string ("0x" ^ Bytes.sub_string digits at 8) mod n in
  let order = Array.init sheet.decoys Fun.id and digits_of_order = drawn (8 * sheet.decoys) in
  for i = sheet.decoys - 1 downto 0 do
    let j = below (i + 1) digits_of_order (8 * i) and other = order.(i) in
    order.(i) <- order.(j);
    order.(j) <- other
  done;
  let released = ref 0 and slot = ref 0 in
  let turns = ref [] and ready = ref false and ended = ref false in (* turns: what was released and has not ended, next first *)
  let release ?(twin = false) ids =
    let line = drawn ((List.length ids * length_of_release) + 1) in
    let turn i id =
      let at = i * length_of_release in
      if id < 0 then begin
        Bytes.blit sheet.bytes (sheet.decoys_at + (digits * order.(!released))) line at digits;
        incr released
      end;
      let token n = Bytes.sub_string line (at + digits + (n * length_of_token)) length_of_token in
      { id; twin; passed = token 0; failed = token 1; right = []; wrong = false }
    in
    turns := List.mapi turn ids @ !turns;
    Bytes.set line (Bytes.length line - 1) '\n';
    if not (write child.told line 0 (Bytes.length line)) then raise Silent
  in
  (* what passed and what ran, of tests that have a twin: no pure answer passes both, and both run *)
  let twins = Hashtbl.create 8 in
  Array.iteri (fun i (id, changed) ->
      Hashtbl.replace twins (Gradus_value.first_twin + i) (id, not changed);
      if changed then Hashtbl.replace twins id (id, true)) sheet.pairs;
  let seen = Hashtbl.create 8 in
  let verdict { id; twin; _ } why =
    if not twin then sign report [ why; string_of_int id ];
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
      let length = sheet.length - sheet.code_at in
      let head = Bytes.of_string (string_of_int length ^ "\n") in
      if not (write child.told head 0 (Bytes.length head) && write child.told sheet.bytes sheet.code_at length) then raise Silent
    | [ "at"; id ], _ when !ready && not !ended ->
      let id = number id in
      let id, twin = Option.value (Hashtbl.find_opt twins id) ~default:(id, false) in
      if id >= sheet.total && not sheet.suite then raise Forged;
      incr slot;
      let places = sheet.total + Array.length sheet.pairs in
      let beside = if !slot > places then 0 else sheet.decoys / (places + 1) in
      let place = below (beside + 1) (drawn 8) 0 in
      release ~twin (List.init (beside + 1) (fun i -> if i = place then id else -1))
    | [ "end" ], [] when !ready && not !ended ->
      let unmatched (id, _) = Hashtbl.mem seen (id, false, "ok") && not (Hashtbl.mem seen (id, true, "ran")) in
      if Array.exists unmatched sheet.pairs then raise Forged;
      ended := true;
      release (List.init (sheet.decoys - !released) (fun _ -> -1))
    | [ "plan"; n ], _ when sheet.suite ->
      planned := max (number n) (List.length (Lazy.force groups));
      sign report [ "plan"; string_of_int !planned ];
      if !planned > max_report / String.length (report.secret ^ " ok 1000\n") then (give_up report; raise Silent)
    | "value" :: n :: digest :: ([] | [ _ ] as text), ({ id; _ } as turn) :: _ when id >= 0 ->
      let n = number n in
      if n >= Array.length sheet.groups || sheet.groups.(n) = no_group then raise Forged;
      if is_value sheet n digest then turn.right <- n :: turn.right
      else begin
        turn.wrong <- true;
        if report.shows then List.iter (fun text -> sign report [ "got"; string_of_int id; text ]) text
      end
    | [ "same"; n; other ], ({ id; _ } as turn) :: _ when id >= 0 ->
      let n = number n and other = number other in
      let known n = n < Array.length sheet.groups && sheet.groups.(n) <> no_group in
      if not (known n && known other) then raise Forged;
      let told = text_of_value sheet other in
      if is_value sheet n told then turn.right <- n :: other :: turn.right else turn.wrong <- true
    | [ "step" ], _ -> sign report [ "step" ]
    | [ "done" ], [] when !ended -> sign report [ "done" ]
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
  let heard line =
    match !turns with
    | { id = -1; failed; _ } :: outer when line = failed ^ " fail" -> turns := outer
    | { id = -1; _ } :: _ -> raise Forged
    | _ -> heard (String.split_on_char ' ' line)
  in
  (try while true do heard (next_line lines) done with
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
