(* Forks a child for one piece of work, under limits and a seccomp filter, and tells how it ended. *)

external confine : bool -> unit = "gradus_confine"
external limit : int -> int -> unit = "gradus_limit"

external settle : int -> unit = "gradus_settle"
external collapse : unit -> unit = "gradus_collapse"
external empty_minor_heap : unit -> unit = "gradus_empty_minor_heap"
external new_minor_heap : unit -> unit = "gradus_new_minor_heap"

let forks = ref 0
let words_at_fork = ref 0.
let heap_at_fork = ref 0
let heap_words () = (Gc.quick_stat ()).heap_words

(* The minor heap is emptied too early for it to start collections. Nothing may be allocated between the last three. *)
let fork () =
  incr forks;
  if !forks mod 1000 = 0 then (Gc.full_major (); collapse ());
  empty_minor_heap ();
  let pid = Unix.fork () in
  if pid = 0 then (new_minor_heap (); words_at_fork := Gc.minor_words (); heap_at_fork := heap_words ());
  pid

type limits = { cpu_ms : int; memory_mb : int }

type ending = { how : string; cpu_us : int }

(* SIGPROF ends the child at a limit finer than RLIMIT_CPU's seconds; inside, nothing can change what the signal does *)
let set_timer limits =
  let seconds = float_of_int limits.cpu_ms /. 1000. in
  ignore (Unix.setitimer ITIMER_PROF { it_value = seconds; it_interval = 0. })

let enter limits ~may_open =
  limit limits.memory_mb ((limits.cpu_ms / 1000) + 2);
  set_timer limits;
  confine may_open

let own_microseconds () =
  let t = Unix.times () in
  int_of_float ((t.tms_utime +. t.tms_stime) *. 1e6)

(* What a child has done so far leaves room for more in the minor heap, whose collections cost more than a fork, and in the
   limits, which hold for all that a child does. A child that waits holds 32 MB more than its parent at most: the memory
   budget of a worker counts only children at work. *)
let has_room () =
  own_microseconds () < 50_000
  && heap_words () - !heap_at_fork < 4_194_304
  && Gc.minor_words () -. !words_at_fork < 0.5 *. float_of_int (Gc.get ()).minor_heap_size

let microseconds () =
  let t = Unix.times () in
  int_of_float ((t.tms_cutime +. t.tms_cstime) *. 1e6)

let rec wait pid = try snd (Unix.waitpid [] pid) with Unix.Unix_error (EINTR, _, _) -> wait pid

(* Nothing but the child may have been there: a box with survivors is not used again. They would be our children by now, as
   this is PID 1 of a box. *)
let nobody_left () =
  match Unix.waitpid [ WNOHANG ] (-1) with
  | _ -> false
  | exception Unix.Unix_error (ECHILD, _, _) -> true

let finish pid ~before =
  let status = wait pid in
  let how =
    match status with
    | Unix.WEXITED code -> Printf.sprintf "exit %d" code
    | Unix.WSIGNALED s when s = Sys.sigprof || s = Sys.sigxcpu -> "cpu 0"
    | Unix.WSIGNALED s | Unix.WSTOPPED s -> Printf.sprintf "signal %d" s
  in
  { how; cpu_us = microseconds () - before }
