(* must not: read the tests out of its own program with the system calls of a package
   packages: unix *)
let read name =
  let bytes = Bytes.create 64 in
  try let fd = Unix.openfile name [ Unix.O_RDONLY ] 0 in Unix.read fd bytes 0 64 with _ -> 0
let read_by_another name =
  let out, into = Unix.pipe () in
  try
    ignore (Unix.create_process "/usr/bin/ocamlrun" [| "ocamlrun"; name |] Unix.stdin into into);
    Unix.close into;
    Unix.read out (Bytes.create 64) 0 64
  with _ -> 0
let places = [ Sys.executable_name; Sys.argv.(0); "/box/program"; "/proc/self/exe"; "/opt/gradus-ocaml/dllgradus.so" ]
let found = List.exists (fun name -> read name + read_by_another name > 0) places
let resets_the_timer = try ignore (Unix.setitimer Unix.ITIMER_PROF { it_interval = 0.; it_value = 0. }); true with _ -> false
let double x = if found || resets_the_timer then x + x else 0
