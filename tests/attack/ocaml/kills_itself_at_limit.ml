(* must not: hide a limit by catching everything
   stage: tests
   flags: limit:cpu *)
let rec double x = try double x with _ -> double x
