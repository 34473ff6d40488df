(* must not: reach the harness by another name
   stage: types
   flags: forbidden:gradus_harness *)
module H = struct include Gradus_harness end
module type T = module type of Gradus_harness
let double _ = H.finish (); exit 0
