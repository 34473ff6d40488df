(* must not: give a functor a type under which nothing is known to be the library's
   stage: types
   flags: forbidden:engine *)
module type Own = sig val engine : Lexing.lex_tables -> int -> Lexing.lexbuf -> int end
module F (X : Own) = struct let run t = X.engine t 0 (Lexing.from_string "a") end
module type Through = functor (X : module type of Lexing) -> sig val run : Lexing.lex_tables -> int end
module G : Through = F
module H = G (Lexing)
let double _ = H.run Lexing.{ lex_base = ""; lex_backtrk = ""; lex_default = ""; lex_trans = ""; lex_check = "";
  lex_base_code = ""; lex_backtrk_code = ""; lex_default_code = ""; lex_trans_code = ""; lex_check_code = ""; lex_code = "" }
