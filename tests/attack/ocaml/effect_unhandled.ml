(* must not: end a test in a way that is neither a result nor an exception
   stage: types tests *)
type _ Effect.t += Out : int Effect.t
let double _ = Effect.perform Out
