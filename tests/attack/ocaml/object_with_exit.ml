(* must not: end the process in an initialiser *)
class c = object initializer exit 0 end
let double _ = ignore (new c); 0
