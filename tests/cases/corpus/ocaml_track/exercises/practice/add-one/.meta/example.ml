let add x = x + 1
