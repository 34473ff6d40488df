(* must not: run forged lexer tables by a name that it declared itself
   stage: types
   flags: forbidden:engine *)
module L : sig val engine : Lexing.lex_tables -> int -> Lexing.lexbuf -> int end = Lexing
let s = "\000\000"
let tables = Lexing.{ lex_base = "\000\000"; lex_backtrk = s; lex_default = s; lex_trans = s; lex_check = s; lex_base_code = s;
  lex_backtrk_code = s; lex_default_code = s; lex_trans_code = s; lex_check_code = s; lex_code = s }
let double x = L.engine tables (x * 100000) (Lexing.from_string "a")
