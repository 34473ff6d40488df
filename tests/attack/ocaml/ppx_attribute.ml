(* must not: run a rewriter *)
[@@@ocaml.ppx.context { tool_name = "x" }]
let double _ = 0 [@@deriving show]
