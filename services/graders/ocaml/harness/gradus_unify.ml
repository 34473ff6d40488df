(* Linked before the answer. Tests have a copy of the library with code of its own (front/private.ml); what they and the answer
   have to agree on is put into that copy here: exceptions, channels, and the buffers that all output and input go through.
   Both copies were initialised by the same code, so what is in the one is at the same place in the other. *)

module Seen = Hashtbl.Make (struct
  type t = Obj.t

  let equal = ( == )
  let hash (block : t) = (Obj.magic block : int) land max_int (* its address: nothing here moves it *)
end)

let seen = Seen.create 4096

(* Channels that are not the same are never equal. *)
let is_shared value other =
  let tag = Obj.tag value in
  tag = Obj.object_tag || (tag = Obj.custom_tag && compare value other <> 0) || List.memq value Gradus_modules.states

(* A function that was defined together with others is a part of their block. *)
let whole value =
  if Obj.tag value = Obj.infix_tag then Obj.add_offset value (Int32.of_int (-Obj.size value * (Sys.word_size / 8))) else value

(* Where what a function closes over begins in its block: the second field says it, behind the function's arity. *)
let environment closure = (Obj.obj (Obj.field closure 1) : int) land ((1 lsl 55) - 1)

let rec unify value other =
  let value = whole value and other = whole other in
  let tag = Obj.tag value in
  if value != other && tag < Obj.no_scan_tag && tag = Obj.tag other && not (Seen.mem seen other) then begin
    Seen.add seen other ();
    let first = if tag = Obj.closure_tag then environment value else 0 in
    for i = first to Obj.size value - 1 do
      let v = Obj.field value i and o = Obj.field other i in
      if Obj.is_block v && Obj.is_block o then if is_shared v o then Obj.set_field other i v else unify v o
    done
  end

let () =
  Gc.minor ();
  List.iter2 unify Gradus_modules.all Gradus_tests_modules.all
