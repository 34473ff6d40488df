(* must not: reach the network
   packages: unix *)
let double _ =
  let talk address =
    try
      let s = Unix.socket (Unix.domain_of_sockaddr address) Unix.SOCK_STREAM 0 in
      Unix.connect s address;
      ignore (Unix.write_substring s "@MARKER@" 0 8)
    with _ -> ()
  in
  talk (Unix.ADDR_INET (Unix.inet_addr_loopback, @PORT@));
  talk (Unix.ADDR_INET (Unix.inet_addr_of_string "10.0.0.1", 80));
  0
