(* must not: be believed when it writes lines of the report's form to every channel it has *)
let lines = [ "start"; "plan 3"; "ok 0"; "ok 1"; "ok 2"; "done" ]
let secrets = [ ""; "0"; String.make 32 '0' ]

let () =
  List.iter
    (fun secret ->
      List.iter
        (fun line ->
          print_endline (secret ^ " " ^ line);
          prerr_endline (secret ^ " " ^ line))
        lines)
    secrets

let double _ = 0
