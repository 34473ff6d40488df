(* One remark about the answer, as the grader reports it. *)

type t = { stage : string; code : string option; line : int option; column : int option; message : string }

let max_message = 2000

let clip text = if String.length text <= max_message then text else String.sub text 0 max_message ^ " ..."

(* error.main's text without the location, which has fields of its own *)
let message_of (report : Location.report) =
  clip (String.concat "\n" (List.map Compiler.text_of (report.main :: report.sub)))

let place (loc : Location.t) =
  if loc = Location.none then None, None
  else Some loc.loc_start.pos_lnum, Some (loc.loc_start.pos_cnum - loc.loc_start.pos_bol + 1)

let of_exn ~stage exn =
  match Location.error_of_exn exn with
  | Some (`Ok report) ->
    let line, column = place report.main.loc in
    { stage; code = None; line; column; message = message_of report }
  | Some `Already_displayed | None ->
    let code, message =
      match exn with
      | Stack_overflow -> Some "exhausted", "the compiler ran out of stack on this answer"
      | Out_of_memory -> Some "exhausted", "the compiler ran out of memory on this answer"
      | exn -> None, "the compiler failed: " ^ Printexc.to_string exn
    in
    { stage; code; line = None; column = None; message }

let max_number = 50

(* what is reported of so many *)
let first diagnostics =
  let more = List.length diagnostics - max_number in
  if more <= 0 then diagnostics
  else
    List.filteri (fun i _ -> i < max_number) diagnostics
    @ [ { stage = (List.hd diagnostics).stage; code = None; line = None; column = None; message = Printf.sprintf "and %d more" more } ]

let json d =
  let number = function Some n -> string_of_int n | None -> "null" in
  let text = function Some s -> Wire.json_string s | None -> "null" in
  Wire.json_object
    [ "stage", Wire.json_string d.stage; "code", text d.code; "line", number d.line; "column", number d.column;
      "message", Wire.json_string d.message ]
