(* must not: leave a process that lives on after its verdict
   packages: unix *)
let () =
  if Unix.fork () = 0 then begin
    ignore (Unix.setsid ());
    if Unix.fork () = 0 then begin
      List.iter Unix.close Unix.[ stdin; stdout; stderr ];
      ignore (Unix.sleep 300)
    end;
    exit 0
  end

let double _ = 0
