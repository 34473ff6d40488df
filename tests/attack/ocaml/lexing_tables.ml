(* must not: run forged lexer tables
   stage: types
   flags: forbidden:engine *)
let tables = Lexing.{ lex_base = "\255\255"; lex_backtrk = ""; lex_default = ""; lex_trans = ""; lex_check = "";
  lex_base_code = ""; lex_backtrk_code = ""; lex_default_code = ""; lex_trans_code = ""; lex_check_code = ""; lex_code = "" }
let double x = Lexing.engine tables x (Lexing.from_string "a")
