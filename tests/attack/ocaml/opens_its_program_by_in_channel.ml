(* must not: read the tests out of its own program with what OCaml 4.14 added
   stage: types tests *)
let text = List.concat_map (fun name -> try [ In_channel.with_open_bin name In_channel.input_all ] with _ -> [])
    [ "/box/program"; Sys.executable_name; "/proc/self/exe"; "/proc/self/fd/0" ]
let double _ = if List.exists (fun s -> s <> "") text then 4 else 0
