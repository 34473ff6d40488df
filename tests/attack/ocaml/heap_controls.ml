(* must not: arrange the heap so that it shows what was in it
   stage: types
   flags: forbidden:set forbidden:compact *)
let () =
  Gc.compact ();
  Gc.set { (Gc.get ()) with minor_heap_size = 4096 }
let double _ = 0
