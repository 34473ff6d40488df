val add : int -> int
