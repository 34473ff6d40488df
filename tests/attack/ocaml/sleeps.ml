(* must not: hold its slot without working
   packages: unix
   flags: limit:wall
   wall_s: 3 *)
let double _ = Unix.sleep 3600; 0
