// must not: fill the grader's memory with what the compiler says
// stage: check
@20000 times fn f#() -> u8 { "#" + missing_# }
@
