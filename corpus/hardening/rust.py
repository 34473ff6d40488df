"""Harder tests of Rust tasks: calls of the functions that the signature declares, with typed
literals. The solution becomes a program that reports what each call returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tree_sitter import Node

from corpus.drafts import Unusable
from corpus.hardening.engine import ProposedTest, iter_failed
from corpus.hardening.known_calls import read_parenthesised
from corpus.hardening.typed_values import Function, Kind, Type, UnknownType, Values, draw_calls
from corpus.rust_mutations import RustMutations
from corpus.task_rows import wrap_in_fence
from gradus.tasks.rust import RustTask
from services.graders.rust.grader import RustGrader
from services.graders.rust.syntax import get_name, get_text, parse

HEADING = "// proposed by `gradus tasks harden`"
_CALLS = 60
"""Calls of each function that are tried."""
_MARK = "\x01"
_COMPARED = frozenset({"PartialEq", "Eq", "PartialOrd", "Ord", "Clone", "Copy", "Debug", "Hash"})
"""Bounds of type parameters for which `i32` will do."""
_PRELUDE = """
mod gradus_inputs {
    pub trait Literal { fn literal(&self) -> String; }
    macro_rules! shown { ($($t:ty),*) => { $(
        impl Literal for $t { fn literal(&self) -> String { format!("{self:?}") } }
    )* } }
    shown!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, bool, char, (), &str);
    impl Literal for String {
        fn literal(&self) -> String { format!("{self:?}.to_string()") }
    }
    fn list<T: Literal>(items: &[T]) -> String {
        items.iter().map(|item| item.literal()).collect::<Vec<_>>().join(", ")
    }
    impl<T: Literal> Literal for Vec<T> {
        fn literal(&self) -> String { format!("vec![{}]", list(self)) }
    }
    impl<T: Literal> Literal for &[T] {
        fn literal(&self) -> String { format!("&[{}]", list(self)) }
    }
    impl<T: Literal> Literal for &T {
        fn literal(&self) -> String { format!("&{}", (**self).literal()) }
    }
    impl<T: Literal> Literal for Option<T> {
        fn literal(&self) -> String {
            self.as_ref().map_or("None".to_string(), |x| format!("Some({})", x.literal()))
        }
    }
    impl<T: Literal, E: Literal> Literal for Result<T, E> {
        fn literal(&self) -> String {
            match self {
                Ok(x) => format!("Ok({})", x.literal()),
                Err(x) => format!("Err({})", x.literal()),
            }
        }
    }
    impl<A: Literal, B: Literal> Literal for (A, B) {
        fn literal(&self) -> String { format!("({}, {})", self.0.literal(), self.1.literal()) }
    }
    impl<A: Literal, B: Literal, C: Literal> Literal for (A, B, C) {
        fn literal(&self) -> String {
            format!("({}, {}, {})", self.0.literal(), self.1.literal(), self.2.literal())
        }
    }
    pub fn report(number: usize, call: impl FnOnce() -> String) {
        let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        println!("\\n\\u{1}{number}\\t{}", text.unwrap_or("!".to_string()));
    }
}
"""


class RustHook:
    """Hardening of Rust tasks; an `engine.Hook`."""

    def __init__(self, grader: RustGrader) -> None:
        self.mutations = RustMutations()
        self._grader = grader

    def propose(self, task: Mapping[str, Any], solution: str, seed: str) -> list[ProposedTest]:
        """Return a test for each call for which the reference returns a value and does not
        panic."""
        functions = find_functions(str(task.get("signature") or ""))
        if task.get("cases"):
            raise Unusable("programs with `cases` are hardened by `--grader program`")
        if task.get("files") or task.get("dependencies"):
            raise Unusable("tasks with files or dependencies are not run on inputs")
        if re.search(r"\bfn main\b", solution):
            raise Unusable("its solution has a `main` of its own")
        if not functions:
            raise Unusable(
                "its signature has no function of numbers, texts, lists, options and the like"
            )
        tests = str(task["tests"])
        values = read_values(tests, solution, seed)
        drawn = draw_calls(functions, values, _CALLS, _render_call, tests, read_parenthesised)
        calls = list(drawn)
        proposed = []
        path = task.get("crate", "solution")
        for call, text in zip(calls, self._run(task, solution, calls), strict=True):
            if text is not None and text != "!":
                test = f"assert_eq!({path}::{call}, {text});"
                proposed.append(ProposedTest(test, call, text))
        return proposed

    def find_failures(
        self, task: Mapping[str, Any], code: str, tests: Sequence[ProposedTest]
    ) -> Iterator[ProposedTest]:
        """Yield tests up to the one at which the code does not end."""
        return iter_failed(tests, self._run(task, code, [test.call for test in tests]))

    def add_tests(self, task: Mapping[str, Any], tests: Sequence[ProposedTest]) -> dict[str, Any]:
        text = str(task["tests"]).rstrip()
        number = text.count("fn hardened_")
        parts = [text, f"\n{HEADING}"]
        for test in tests:
            number += 1
            parts.append(f"#[test]\nfn hardened_{number}() {{\n    {test.text}\n}}")
        return {"tests": "\n".join([*parts, ""])}

    def _run(self, task: Mapping[str, Any], source: str, calls: Sequence[str]) -> list[str | None]:
        """Return what each call returns, as a literal: `!` where it panics, None where it and those
        after it did not end, or nothing compiles."""
        lines = [source, _PRELUDE, "fn main() { use gradus_inputs::Literal;"]
        for number, call in enumerate(calls):
            lines.append(f"gradus_inputs::report({number}, || {call}.literal());")
        program = wrap_in_fence("rust", "\n".join([*lines, "}"]))
        settings = {"edition": task.get("edition", "2021"), "limits": task.get("limits", {})}
        run = RustTask.model_validate({"cases": [{"stdout": ""}], **settings})
        output = self._grader.read_output(run, program, is_partial=True)
        results: list[str | None] = [None] * len(calls)
        for match in re.finditer(rf"^{_MARK}(\d+)\t(.*)$", output, re.MULTILINE):
            if int(match[1]) < len(results):
                results[int(match[1])] = match[2]
        return results


def find_functions(signature: str) -> list[Function]:
    """Return the functions at the crate's root whose values can be made and compared exactly."""
    functions = []
    for node in parse(signature).named_children:
        if node.type not in ("function_signature_item", "function_item"):
            continue
        try:
            functions.append(_read_function(node))
        except UnknownType:
            continue
    return functions


def _read_function(node: Node) -> Function:
    generic = _read_generic_names(node)
    parameters = []
    for parameter in _get_field(node, "parameters").named_children:
        parameters.append(_read_type(_get_field(parameter, "type"), generic))
    result = node.child_by_field_name("return_type")
    returned = _read_type(result, generic) if result else Type(Kind.UNIT, "()")
    if not parameters or returned.holds_floats():
        raise UnknownType(get_name(node))
    return Function(get_name(node), tuple(parameters), returned)


def _read_generic_names(node: Node) -> frozenset[str]:
    """Return the type parameters for which `i32` will do. Raises UnknownType for others."""
    declared = node.child_by_field_name("type_parameters")
    if any(child.type == "where_clause" for child in node.named_children):
        raise UnknownType("where")
    names = set()
    for text in get_text(declared).strip("<>").split(",") if declared else ():
        name, _, bounds = text.strip().partition(":")
        if name.startswith("'"):
            continue
        if not set(re.findall(r"[^\s+]+", bounds)) <= _COMPARED:
            raise UnknownType(text)
        names.add(name.strip())
    return frozenset(names)


def _get_field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise UnknownType(get_text(node))
    return child


def _read_type(node: Node, generic: frozenset[str]) -> Type:
    text = get_text(node)
    match node.type:
        case "primitive_type":
            return _read_primitive(text)
        case "type_identifier" if text in generic:
            return _read_primitive("i32")
        case "type_identifier" if text == "String":
            return Type(Kind.TEXT, text)
        case "unit_type":
            return Type(Kind.UNIT, text)
        case "tuple_type" if len(node.named_children) in (2, 3):
            return Type(Kind.TUPLE, "", tuple(_read_type(x, generic) for x in node.named_children))
        case "array_type" if node.child_by_field_name("length") is None:
            return Type(Kind.LIST, "[]", (_read_type(_get_field(node, "element"), generic),))
        case "reference_type" if not re.match(r"&\s*('\w+\s+)?mut\b", text):
            inner = _read_type(_get_field(node, "type"), generic)
            return Type(inner.kind, f"&{inner.name}", inner.arguments, inner.bounds)
        case "generic_type":
            return _read_container(node, generic)
    raise UnknownType(text)


def _read_container(node: Node, generic: frozenset[str]) -> Type:
    name = get_text(_get_field(node, "type"))
    arguments = []
    for child in _get_field(node, "type_arguments").named_children:
        if child.type != "lifetime":
            arguments.append(_read_type(child, generic))
    kinds = {"Vec": (Kind.LIST, 1), "Option": (Kind.OPTION, 1), "Result": (Kind.RESULT, 2)}
    kind, arity = kinds.get(name, (None, 0))
    if kind is None or len(arguments) != arity:
        raise UnknownType(name)
    return Type(kind, name, tuple(arguments))


def _read_primitive(name: str) -> Type:
    kinds = {"bool": Kind.BOOLEAN, "char": Kind.CHARACTER, "str": Kind.TEXT}
    if name in kinds:
        return Type(kinds[name], name)
    if name in ("f32", "f64"):
        return Type(Kind.FLOAT, name)
    match = re.fullmatch(r"([iu])(8|16|32|64|128|size)", name)
    if match is None:
        raise UnknownType(name)
    bits = 64 if match[2] == "size" else int(match[2])
    bounds = (0, 2**bits - 1) if match[1] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return Type(Kind.INTEGER, name, bounds=bounds)


def read_values(tests: str, solution: str, seed: str) -> Values:
    """Return literals near those of the tests."""
    return Values(
        tests,
        solution,
        seed,
        _render_literal,
        negative=r"(?<![\w)\] ]) ?-\d|[(,=] -\d",
        empty_list=r"\[\s*\]|Vec::new\(\)",
    )


def _render_call(function: str, arguments: Sequence[str]) -> str:
    return f"{function}({', '.join(arguments)})"


def _render_literal(drawn: Type, word: str, parts: Sequence[str]) -> str:
    if drawn.name.startswith("&") and drawn.name not in ("&str", "&[]"):
        inner = Type(drawn.kind, drawn.name[1:], drawn.arguments, drawn.bounds)
        return f"&{_render_literal(inner, word, parts)}"
    match drawn.kind:
        case Kind.CHARACTER:
            return f"'{word}'"
        case Kind.FLOAT:
            return f"{word}0" if word.endswith(".") else word
        case Kind.TEXT:
            return f'"{word}".to_string()' if drawn.name == "String" else f'"{word}"'
        case Kind.LIST:
            items = ", ".join(parts)
            return f"vec![{items}]" if drawn.name == "Vec" else f"&[{items}]"
        case Kind.OPTION | Kind.RESULT:
            name = "Err" if word == "Error" else word
            return f"{name}({parts[0]})" if parts else name
        case Kind.TUPLE:
            return f"({', '.join(parts)})"
        case Kind.UNIT:
            return "()"
    return word
