(* How the front talks with the grader outside: sections of named bytes, and JSON text. Knows nothing of OCaml code.
   A section is "<name> <length>\n" and then <length> bytes, in both directions. *)

type sections = (string * string) list

let sections_of text : sections =
  let rec go found from =
    if from >= String.length text then List.rev found
    else
      let line_end = String.index_from text from '\n' in
      let space = String.rindex_from text line_end ' ' in
      let length = int_of_string (String.sub text (space + 1) (line_end - space - 1)) in
      let name = String.sub text from (space - from) in
      go ((name, String.sub text (line_end + 1) length) :: found) (line_end + 1 + length)
  in
  go [] 0

let text_of (sections : sections) =
  let b = Buffer.create 65536 in
  List.iter (fun (name, bytes) -> Printf.bprintf b "%s %d\n%s" name (String.length bytes) bytes) sections;
  Buffer.contents b

let find sections name = List.assoc_opt name sections
let get sections name = Option.value (find sections name) ~default:""

(* every section called [prefix ^ file], as (file, bytes), in the order given *)
let under prefix sections =
  let n = String.length prefix in
  List.filter_map
    (fun (name, bytes) ->
      if String.length name > n && String.sub name 0 n = prefix
      then Some (String.sub name n (String.length name - n), bytes)
      else None)
    sections

let lines text = String.split_on_char '\n' text |> List.filter (fun line -> line <> "")

let json_string text =
  let b = Buffer.create (String.length text + 2) in
  Buffer.add_char b '"';
  String.iter
    (fun c ->
      match c with
      | '"' -> Buffer.add_string b "\\\""
      | '\\' -> Buffer.add_string b "\\\\"
      | '\n' -> Buffer.add_string b "\\n"
      | c when Char.code c < 0x20 || Char.code c = 0x7f -> Printf.bprintf b "\\u%04x" (Char.code c)
      | c -> Buffer.add_char b c)
    text;
  Buffer.add_char b '"';
  Buffer.contents b

let json_list items = "[" ^ String.concat "," items ^ "]"
let json_object fields = "{" ^ String.concat "," (List.map (fun (k, v) -> json_string k ^ ":" ^ v) fields) ^ "}"
