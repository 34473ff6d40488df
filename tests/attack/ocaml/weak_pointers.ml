(* must not: watch values die
   stage: types
   flags: forbidden:weak *)
let w : int ref Weak.t = Weak.create 4
let double x = Weak.length w + x - x
