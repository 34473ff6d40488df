(* must not: read, change, rename or remove files outside of its box *)
let double _ =
  let file = "@CANARY@/canary" in
  let attempt f = try f () with Sys_error _ -> () in
  attempt (fun () -> print_endline (input_line (open_in file)); failwith "read it");
  attempt (fun () -> let c = open_out file in output_string c "@MARKER@"; close_out c);
  attempt (fun () -> Sys.remove file);
  attempt (fun () -> Sys.rename file (file ^ ".gone"));
  attempt (fun () -> Sys.mkdir "@CANARY@/@MARKER@" 0o777);
  attempt (fun () -> ignore (Sys.command "touch @CANARY@/@MARKER@"));
  0
