(* must not: outnumber its box, or outlive it
   packages: unix *)
let double _ =
  let rec fork n =
    if n > 0 then begin
      (match Unix.fork () with
       | 0 -> (try ignore (Unix.setsid ()) with _ -> ()); fork (n - 1); Unix.sleep 300
       | _ -> ()
       | exception Unix.Unix_error _ -> ());
      fork (n - 1)
    end
  in
  fork 12;
  0
