"""Programs that re-export one value of the library through compositions of what OCaml has for that,
against the grader.

With a forbidden value, no program may compile: it is refused, or it does not type. With an allowed
value of such modules, none may be refused. `python -m tests.attack.fuzz_ocaml_bypasses --number
4000`; the same seed gives the same programs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradus.contract import Faulted, Graded
from services.graders.ocaml.grader import OcamlGrader
from tests.attack.fuzz_ocaml import command, graded


@dataclass(frozen=True)
class Target:
    module: str
    value: str
    type: str
    hidden: bool = False
    """Answers see the module only where packages bring the whole library."""
    allowed: bool = False


BIGARRAY = "('a, 'b, 'c) Bigarray"
FORBIDDEN = (
    Target("Obj", "magic", "'a -> 'b", hidden=True),
    Target("Obj", "reachable_words", "Stdlib.Obj.t -> int", hidden=True),
    Target("Marshal", "from_string", "string -> int -> 'a", hidden=True),
    Target("Callback", "register", "string -> 'a -> unit", hidden=True),
    Target("Weak", "create", "int -> 'a Stdlib.Weak.t", hidden=True),
    Target("Ephemeron.K1", "create", "unit -> ('a, 'b) Stdlib.Ephemeron.K1.t", hidden=True),
    Target("CamlinternalLazy", "force_lazy_block", "'a lazy_t -> 'a"),
    Target("CamlinternalOO", "public_method_label", "string -> CamlinternalOO.tag"),
    Target("Stdlib", "input_value", "in_channel -> 'a"),
    Target("Lexing", "engine", "Lexing.lex_tables -> int -> Lexing.lexbuf -> int"),
    Target("Lexing", "new_engine", "Lexing.lex_tables -> int -> Lexing.lexbuf -> int"),
    Target("Gc", "set", "Gc.control -> unit"),
    Target("Gc", "compact", "unit -> unit"),
    Target("Gc", "finalise", "('a -> unit) -> 'a -> unit"),
    Target("Gc", "create_alarm", "(unit -> unit) -> Gc.alarm"),
    Target("Gc.Memprof", "stop", "unit -> unit"),
    Target("Bigarray", "reshape", f"{BIGARRAY}.Genarray.t -> int array -> {BIGARRAY}.Genarray.t"),
    Target("Bigarray", "reshape_1", f"{BIGARRAY}.Genarray.t -> int -> {BIGARRAY}.Array1.t"),
    Target("Bigarray.Array1", "unsafe_get", f"{BIGARRAY}.Array1.t -> int -> 'a"),
    Target("Array", "unsafe_get", "'a array -> int -> 'a"),
    Target("StdLabels.Array", "unsafe_set", "'a array -> int -> 'a -> unit"),
    Target("Float.Array", "unsafe_get", "floatarray -> int -> float"),
    Target("String", "unsafe_get", "string -> int -> char"),
    Target("Bytes", "unsafe_to_string", "bytes -> string"),
    Target("Char", "unsafe_chr", "int -> char"),
)
ALLOWED = (
    Target("List", "length", "'a list -> int", allowed=True),
    Target("String", "length", "string -> int", allowed=True),
    Target("Array", "get", "'a array -> int -> 'a", allowed=True),
    Target("Bytes", "to_string", "bytes -> string", allowed=True),
    Target("Lexing", "lexeme", "Lexing.lexbuf -> string", allowed=True),
    Target("Gc", "full_major", "unit -> unit", allowed=True),
    Target("Bigarray.Array1", "dim", f"{BIGARRAY}.Array1.t -> int", allowed=True),
    Target("Stdlib", "succ", "int -> int", allowed=True),
    Target("Hashtbl", "hash", "'a -> int", allowed=True),
    Target("Float.Array", "length", "floatarray -> int", allowed=True),
)

Step = Callable[[str, str, str, int], tuple[str, str]]
"""(module that has the value, the value, its type, a number) -> (code, module that has the value
then)"""


def _step(code: str, result: str = "A~") -> Step:
    """`@`: the module, `$`: the value, `%`: its type, `~`: the number, `^`: a signature of the
    value alone."""

    def fill(module: str, value: str, type_: str, number: int) -> tuple[str, str]:
        def filled(text: str) -> str:
            text = text.replace("^", "sig val $ : % end").replace("@", module).replace("$", value)
            return text.replace("%", type_).replace("~", str(number))

        return filled(code), filled(result)

    return fill


PLAIN = (
    _step("module A~ = @"),
    _step("module A~ = struct include @ end"),
    _step("module A~ = struct open! @ let $ = $ end"),
    _step("module A~ = struct let $ = let open! @ in $ end"),
    _step("module A~ = struct let $ = @.($) end"),
    _step("open struct module B~ = @ end module A~ = B~"),
    _step("module A~ : ^ = @"),
    _step("module A~ : ^ = struct include @ end"),
    _step("module A~ = struct include (@ : ^) end"),
    _step("module F~ (X : ^) = X module A~ = F~ (@)"),
    _step("module F~ (X : ^) = struct include X end module A~ = F~ (@)"),
    _step("module F~ (X : ^) : ^ = X module A~ = F~ (struct include @ end)"),
    _step("module F~ () = struct include @ end module A~ = F~ ()"),
    _step("module F~ (X : sig end) = @ module A~ = F~ (struct end)"),
    _step("module G~ (F : functor (X : ^) -> ^) = F (@) module A~ = G~ (functor (X : ^) -> X)"),
    _step("module type S~ = ^ module A~ = (val (module @ : S~))"),
    _step("module type S~ = ^ let p~ = (module @ : S~) module A~ = (val p~)"),
    _step("module type S~ = ^ module A~ = (val (let module L = @ in (module L) : (module S~)))"),
    _step(
        "module type S~ = ^ let f~ (module X : S~) = (module X : S~) module A~ = (val f~"
        " (module @))"
    ),
    _step("module rec A~ : ^ = @"),
    _step("module rec A~ : ^ = B~ and B~ : ^ = @"),
    _step("module N~ = struct module I = @ end", "N~.I"),
    _step("module N~ : sig module I : ^ end = struct module I = @ end", "N~.I"),
    _step(
        "module type S~ = sig module I : ^ end module N~ = (struct module I = @ end : S~)", "N~.I"
    ),
    _step("module A~ : ^ = struct let $ = let module L = @ in L.$ end"),
    _step("module A~ : ^ = struct let $ = let module L : ^ = @ in L.$ end"),
    _step("module A~ = struct let $ x = (object method m = @.$ end)#m x end"),
    _step("class c~ = object method m = @.$ end module A~ = struct let $ x = (new c~)#m x end"),
    _step("module A~ = struct let $ = fst (@.$, ()) end"),
    _step("module A~ = struct let ( let* ) = @.$ let $ = ( let* ) end"),
    _step("exception E~ module A~ = struct exception E~ = E~ include @ end"),
    _step(
        "type t~ = .. module M~ = struct type t~ += C end module A~ = struct type t~ += C = M~.C"
        " include @ end"
    ),
    _step(
        "module D~ = struct module Obj = struct end module Lexing = struct end module Gc = List end"
        " module A~ = @"
    ),
    _step('module A~ = struct [@@@ocaml.warning "-a"] include @ let unsafe_own = 1 end'),
)
"""What honest programs are made of, too."""

ODD = (
    _step("module A~ : module type of @ = @"),
    _step("module A~ : module type of struct include @ end = @"),
    _step("module F~ (X : module type of @) = struct include X end module A~ = F~ (@)"),
    _step("module F~ (X : module type of @) = struct let $ = X.$ end module A~ = F~ (@)"),
    _step(
        "module F~ (X : ^) = X module G~ : functor (X : module type of @) -> ^ = F~ module A~ ="
        " G~ (@)"
    ),
    _step(
        "module type T~ = functor (X : sig end) -> ^ module F~ (X : sig end) = @ "
        "module H~ : T~ = F~ module A~ = H~ (struct end)"
    ),
    _step("module type S~ = module type of @ let p~ = (module @ : S~) module A~ = (val p~)"),
    _step(
        "module type S~ = module type of @ module type O~ = ^ let p~ = (module @ : S~) let q~ = (p~"
        " :> (module O~)) module A~ = (val q~)"
    ),
    _step(
        "module F~ (P : sig module type X module M : X end) = P.M "
        "module R~ = struct module type X = ^ module M = @ end module A~ = F~ (R~)"
    ),
    _step(
        "module F~ (P : sig module type X module M : X end) = struct module M = P.M end "
        "module A0~ = F~ (struct module type X = ^ module M = @ end) module A~ = A0~.M"
    ),
    _step(
        "module type S~ = sig module I : ^ end module type W~ = S~ with module I = @ "
        "module N~ : W~ = struct module I = @ end",
        "N~.I",
    ),
    _step('module A~ = struct external $ : % = "%identity" include @ end'),
    _step('module A~ : sig external $ : % = "%identity" end = @'),
    _step(
        "exception E~ of (%) module A~ = struct let $ = match E~ @.$ with E~ f -> f | _ -> assert"
        " false end"
    ),
    _step(
        "type t~ = .. type t~ += C~ of (%) "
        "module A~ = struct let $ = match C~ @.$ with C~ f -> f | _ -> assert false end"
    ),
    _step("module W~ : sig module List : ^ end = struct module List = @ end module A~ = W~.List"),
    _step(
        "module type S~ = sig include module type of @ end module A~ = struct module M : S~ = @"
        " include M end"
    ),
    _step("module A~ = (functor (X : ^) -> struct include X end) (struct open! @ let $ = $ end)"),
)


@dataclass(frozen=True)
class Program:
    target: Target
    source: str


def programs(seed: int, number: int) -> Iterator[Program]:
    """Every target through every single step first, then compositions of two to four, in an order
    of chance."""
    rnd = random.Random(seed)
    singles = [
        (target, (step,))
        for target in (*FORBIDDEN, *ALLOWED)
        for step in (PLAIN if target.allowed else PLAIN + ODD)
    ]
    rnd.shuffle(singles)
    for n in range(number):
        if n < len(singles) and n % 2 == 0:
            target, steps = singles[n]
        else:
            target = rnd.choice(ALLOWED if rnd.random() < 0.2 else FORBIDDEN)
            steps = tuple(
                rnd.choices(PLAIN if target.allowed else PLAIN + ODD, k=rnd.randint(2, 4))
            )
        module = (
            f"Stdlib.{target.module}"
            if _is_in_stdlib(target) and rnd.random() < 0.3
            else target.module
        )
        lines = []
        for at, step in enumerate(steps):
            code, module = step(module, target.value, target.type, at)
            lines.append(code)
        use = rnd.choice(
            (
                "ignore ({}); 2 * x",
                "let _ = {} in x + x",
                "let f _ = {} in if false then ignore (f x); 2 * x",
            )
        )
        lines.append(f"let double x = {use.format(f'{module}.{target.value}')}")
        yield Program(target, "\n".join(lines))


def _is_in_stdlib(target: Target) -> bool:
    return not target.module.startswith(("Stdlib", "Camlinternal"))


def fuzz(
    grader: OcamlGrader, seed: int, number: int, slots: int | None = None
) -> Iterator[tuple[str, str | None, str]]:
    """(outcome, what is wrong with it, source) of each."""
    chosen = list(programs(seed, number))
    task = {"signature": "val double : int -> int", "tests": "let () = assert (double 2 = 4)"}
    answers = [
        (one.source, task | ({"packages": ["str"]} if one.target.hidden else {})) for one in chosen
    ]
    for program, result in zip(chosen, graded(grader, answers, slots), strict=True):
        yield *_verdict(program, result), program.source


def _verdict(program: Program, result: Graded | Faulted) -> tuple[str, str | None]:
    if isinstance(result, Faulted):
        return "fault", f"{result.fault.kind}: {result.fault.message}"
    refused = any(flag.startswith("forbidden:") for flag in result.flags)
    kind = "allowed" if program.target.allowed else "forbidden"
    if refused:
        flags = ", ".join(result.flags)
        return (
            f"{kind}: refused",
            f"refused for nothing: {flags}" if program.target.allowed else None,
        )
    if result.passed:
        value = f"{program.target.module}.{program.target.value}"
        return f"{kind}: passed", None if program.target.allowed else f"{value} was reached"
    return f"{kind}: does not type", (
        None if result.components["compile"] == 0 else "it compiled and did not pass"
    )


if __name__ == "__main__":
    sys.exit(command(fuzz, 4_000, __doc__))
