(* must not: report in the harness's name
   stage: types
   flags: forbidden:gradus_harness *)
let () =
  List.iter Gradus_harness.report [ [ "ok"; "0" ]; [ "ok"; "1" ]; [ "ok"; "2" ]; [ "done" ] ];
  exit 0

let double _ = 0
