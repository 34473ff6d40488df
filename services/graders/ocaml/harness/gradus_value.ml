(* Values as canonical text: two that [=] finds equal have the same text, two that it finds different do not. Part of the
   harness, where the answer's values are, and of the front, which knows what is expected. *)

let max_text = 1 lsl 18

exception Too_long

(* Blocks say their tag and their size first. Raises what [=] raises of functions; a text that would be too long is
   [None], as are cyclic values. *)
let text value =
  let b = Buffer.create 64 in
  let number n end_ = Buffer.add_string b (string_of_int n); Buffer.add_char b end_ in (* Printf would be most of the time *)
  let float f = if f = 0. then Buffer.add_string b "0." else (Buffer.add_string b (Int64.to_string (Int64.bits_of_float f)); Buffer.add_char b '.') in
  let rec add value =
    if Buffer.length b > max_text then raise Too_long;
    if Obj.is_int value then number (Obj.obj value : int) ','
    else
      let tag = Obj.tag value in
      if tag = Obj.string_tag then (number (String.length (Obj.obj value)) '"'; Buffer.add_string b (Obj.obj value))
      else if tag = Obj.double_tag then float (Obj.obj value)
      else if tag = Obj.double_array_tag then begin
        number (Array.length (Obj.obj value : float array)) '[';
        Array.iter float (Obj.obj value)
      end
      else if tag = Obj.custom_tag then Buffer.add_string b (Digest.to_hex (Digest.string (Marshal.to_string value [])))
      else if tag = Obj.forward_tag then add (Obj.field value 0)
      else if tag >= Obj.lazy_tag then invalid_arg "compare: functional value"
      else fields tag value
  and fields tag value =
    let size = Obj.size value in
    number tag '(';
    number size ':';
    for i = 0 to size - 2 do add (Obj.field value i) done;
    if size > 0 then add (Obj.field value (size - 1)) (* a long list is no deep recursion *)
  in
  match add value with () -> Some (Buffer.contents b) | exception Too_long -> None

(* What the harness tells of a value: its digest and, where it is short, its text in hexadecimal digits. *)
let max_told = 80

let told value =
  let hex text = String.init (2 * String.length text) (fun i ->
      "0123456789abcdef".[(Char.code text.[i / 2] lsr (if i land 1 = 0 then 4 else 0)) land 15]) in
  match text value with
  | Some text -> Digest.to_hex (Digest.string text) :: (if String.length text <= max_told then [ hex text ] else [])
  | None -> [ "-" ]

(* A float that is compared by how near it is. *)
let bits f = Printf.sprintf "%016Lx" (Int64.bits_of_float f)

(* OUnit's [cmp_float]. A difference with infinity is infinite, and so is the error that infinity allows. *)
let in_proportion ~epsilon a b =
  match classify_float a, classify_float b with
  | FP_infinite, FP_infinite -> a = b
  | (FP_infinite | FP_nan), _ | _, (FP_infinite | FP_nan) -> false
  | _ ->
    let difference = abs_float (a -. b) in
    difference <= epsilon *. abs_float a || difference <= epsilon *. abs_float b

(* Numbers of tests: their twins have those from here on, where the two did not change them. *)
let first_twin = 1_000_000
