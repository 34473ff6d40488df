(* must not: use more memory than it may *)
let kept = ref []

let double _ =
  (try
     while true do
       kept := Bytes.make 16_000_000 'x' :: !kept
     done
   with Out_of_memory -> ());
  List.length !kept
