(* must not: look for the secret in memory, or write there
   stage: types
   flags: forbidden:unsafe_get *)
let text = "here"

let double _ =
  for i = -1_000_000 to 1_000_000 do
    print_char (String.unsafe_get text i)
  done;
  let values = [| 1 |] in
  Array.unsafe_set values 12345 0;
  Bytes.unsafe_set (Bytes.unsafe_of_string text) 99999 'x';
  0
