(* must not: use a directive of the toplevel
   stage: types *)
#use "/etc/passwd";;
let double _ = 0
