"""Rows of APPS, TACO, CodeContests, LiveCodeBench and SandboxFusion's CommonOJ as they are
published, made into tasks of the program grader. Runs nothing.

| layout | columns that are read |
|---|---|
| apps | problem_id, question, input_output, solutions, starter_code |
| taco | the same without an id; time_limit, memory_limit |
| code-contests | name, description, `*_tests`, solutions, time_limit, memory_limit_bytes |
| livecodebench | question_id, question_content, starter_code, `*_test_cases`, metadata |
| common-oj | id, content, test, labels, canonical_solution |

Cells may hold JSON texts, as the data sets have them, or the values themselves.
"""

from __future__ import annotations

import ast
import base64
import binascii
import pickletools
import re
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from corpus.drafts import Unusable, get_text, require_text
from gradus.strict_json import parse_strict_json
from gradus.tasks.program import choose_checker

MAX_CASES = 1000
"""Most hidden cases of one task; `ProgramTask.cases` takes no more."""
MAX_PUBLIC_CASES = 16
MAX_TESTS_BYTES = 256 * 2**20
"""Most bytes of one record's tests after decompression."""
STUBS = {
    "python": "pass\n",
    "cpp": "int main() {}\n",
    "c": "int main(void) { return 0; }\n",
    "rust": "fn main() {}\n",
    "ocaml": "let () = ()\n",
    "go": "package main\n\nfunc main() {}\n",
    "javascript": "void 0;\n",
    "typescript": "void 0;\n",
    "java": "class Main {\n    public static void main(String[] arguments) {}\n}\n",
    "csharp": "class Program {\n    static void Main() {}\n}\n",
    "kotlin": "fun main() {}\n",
    "scala": "object Main extends App {}\n",
    "haskell": "main :: IO ()\nmain = return ()\n",
    "ruby": "nil\n",
    "perl": "1;\n",
    "lua": "do end\n",
    "bash": ":\n",
}
"""Programs that do nothing, by language. A task that one of them passes proves nothing."""
_DISPLAYED = {
    "python": "Python 3",
    "cpp": "C++",
    "csharp": "C#",
    "ocaml": "OCaml",
    "javascript": "JavaScript (Node.js)",
    "typescript": "TypeScript",
}
"""Names of languages in prompts, where they are not the capitalized name."""
CODE_CONTESTS_LANGUAGES = {"python": 3, "cpp": 2}
"""Numbers of languages in `solutions` of CodeContests; 1 is Python 2 and 4 is Java."""
_FOREIGN_NAMES = {"javascript": "nodejs"}
"""SandboxFusion's names of languages, where they are not ours."""
CODE_CONTESTS_SOURCES = (
    "unknown",
    "CodeChef",
    "Codeforces",
    "HackerEarth",
    "CodeJam",
    "AtCoder",
    "Aizu",
)
_TEXT_OPCODES = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_FRAMING_OPCODES = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_Values = Mapping[str, Any]
_Cases = list[dict[str, Any]]


def convert_apps(values: _Values, language: str) -> dict[str, Any]:
    """Return the fields of the task of a row of APPS or TACO. Raises Unusable."""
    tests = _decode_object(values, "input_output")
    inputs = tests.get("inputs", [])
    outputs = tests.get("outputs", [])
    function = tests.get("fn_name")
    if function:
        _require_python(language)
        cases = _build_calls(function, inputs, _unwrap_values(outputs))
    else:
        cases = _build_runs(inputs, outputs)
    solutions = _decode_json(values, "solutions") if values.get("solutions") else []
    solution = _choose_python(solutions) if language == "python" else None
    task = _build_task(
        require_text(values, "question"),
        get_text(values, "starter_code"),
        function,
        language,
        cases,
        solution,
    )
    return {**task, **_build_limits(_parse_number(values, "time_limit"), _parse_mib(values))}


def convert_code_contests(values: _Values, language: str) -> dict[str, Any]:
    """Return the fields of the task of a row of CodeContests. Raises Unusable."""
    if values.get("input_file") or values.get("output_file"):
        raise Unusable("input_file: the program reads or writes a named file")
    public = _read_contest_tests(values, "public_tests")
    hidden = _read_contest_tests(values, "private_tests")
    hidden += _read_contest_tests(values, "generated_tests")
    solution = None
    solutions = _decode_object(values, "solutions")
    if solutions:
        number = CODE_CONTESTS_LANGUAGES.get(language)
        pairs = _pair(solutions.get("language"), solutions.get("solution"))
        texts = [text for written_in, text in pairs if written_in == number]
        solution = _choose_python(texts) if language == "python" else next(iter(texts), None)
    description = require_text(values, "description")
    hidden, public = _separate(hidden, public)
    task = _build_task(description, None, None, language, hidden, solution)
    if public:
        task["public_cases"] = public
    source = values.get("source")
    if isinstance(source, int) and 0 <= source < len(CODE_CONTESTS_SOURCES):
        task["source"] = CODE_CONTESTS_SOURCES[source]
    limit = values.get("time_limit")
    seconds = None
    if isinstance(limit, Mapping):
        seconds = float(limit.get("seconds") or 0) + float(limit.get("nanos") or 0) / 1e9
    memory_bytes = values.get("memory_limit_bytes")
    return {**task, **_build_limits(seconds, memory_bytes / 2**20 if memory_bytes else None)}


def convert_livecodebench(values: _Values, language: str) -> dict[str, Any]:
    """Return the fields of the task of a row of LiveCodeBench, which has no reference answers.
    Raises Unusable."""
    function = _decode_object(values, "metadata").get("func_name")
    public = _read_live_tests(_decode_json(values, "public_test_cases"), function)
    hidden = _read_live_tests(_decode_packed(values, "private_test_cases"), function)
    if function:
        _require_python(language)
    content = require_text(values, "question_content")
    starter = get_text(values, "starter_code")
    hidden, public = _separate(hidden, public)
    task = _build_task(content, starter, function, language, hidden, None)
    if public:
        task["public_cases"] = public
    for name, column in (("title", "question_title"), ("source", "platform")):
        if values.get(column):
            task[name] = values[column]
    return task


def convert_common_oj(values: _Values, language: str) -> dict[str, Any]:
    """Return the fields of the task of a row of SandboxFusion's CommonOJ. Raises Unusable."""
    labels = _decode_object(values, "labels")
    kind = labels.get("problem_format") or "Standard"
    if kind != "Standard":
        raise Unusable(f"labels.problem_format: is {kind!r}, not 'Standard'")
    tests = _decode_json(values, "test")
    if not isinstance(tests, list):
        raise Unusable("test: is no list")
    cases = list(map(_convert_common_test, tests))
    solutions = _decode_object(values, "canonical_solution")
    texts = solutions.get(_FOREIGN_NAMES.get(language, language)) or []
    if isinstance(texts, str):
        texts = [texts]
    solution = _choose_python(texts) if language == "python" else next(iter(texts), None)
    task = _build_task(require_text(values, "content"), None, None, language, cases, solution)
    for name, column in (("title", "name"), ("source", "source"), ("difficulty", "difficulty")):
        if labels.get(column):
            task[name] = labels[column]
    return task


def _convert_common_test(test: Any) -> dict[str, Any]:
    """Return the case of a test, whose input is standard input and files by name."""
    try:
        files = dict(test["input"])
        outputs = dict(test["output"])
        stdin = _join_lines(files.pop("stdin", ""))
        stdout = _join_lines(outputs.pop("stdout"))
    except (KeyError, TypeError, ValueError):
        raise Unusable("test: has a case without `input` or `output.stdout`") from None
    if outputs:
        raise Unusable(f"test: the program writes files: {', '.join(sorted(outputs))}")
    case: dict[str, Any] = {"stdin": stdin, "stdout": stdout}
    if files:
        case["files"] = files
    return case


def _separate(hidden: _Cases, public: _Cases) -> tuple[_Cases, _Cases]:
    """Return hidden cases that are not public, and public ones. Where nothing else is hidden, the
    public ones are."""
    shown = set(map(repr, public[:MAX_PUBLIC_CASES]))  # 1 and true are equal, but not as JSON
    others = [case for case in hidden if repr(case) not in shown]
    return (others, public[:MAX_PUBLIC_CASES]) if others else (public, [])


def _build_task(
    description: str,
    starter: str | None,
    function: str | None,
    language: str,
    cases: _Cases,
    solution: str | None,
) -> dict[str, Any]:
    if not cases:
        raise Unusable("has no tests")
    displayed = _DISPLAYED.get(language, language.capitalize())
    if function:
        instruction = f"Write {displayed} that defines `{function}`."
    else:
        instruction = (
            f"Write a program in {displayed} that reads standard input and writes to standard"
            " output."
        )
    prompt = f"{description.strip()}\n\n{instruction}"
    if starter:
        prompt += f"\n\nStart from this:\n\n```{language}\n{starter.strip()}\n```"
    task = {
        "prompt": prompt,
        "language": language,
        "cases": cases[:MAX_CASES],
        "stub": STUBS[language],
    }
    if solution:
        task["solution"] = solution
    checker = choose_checker(case.get("stdout", "") for case in cases)
    if checker != "tokens":
        task["checker"] = checker
    return task


def _build_runs(inputs: Any, outputs: Any) -> _Cases:
    """Return cases of standard input and output. APPS has some of both as lists of lines."""
    cases = []
    for stdin, stdout in _pair(inputs, outputs):
        cases.append({"stdin": _join_lines(stdin), "stdout": _join_lines(stdout)})
    return cases


def _build_calls(function: str, inputs: Any, outputs: Any) -> _Cases:
    cases = []
    for arguments, value in _pair(inputs, outputs):
        if not isinstance(arguments, list):
            raise Unusable("inputs: are no lists of arguments")
        call = {"function": function, "arguments": arguments}
        cases.append({"call": call, "equals": value})
    return cases


def _pair(inputs: Any, outputs: Any) -> list[tuple[Any, Any]]:
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence):
        raise Unusable("inputs and outputs: are no lists")
    if len(inputs) != len(outputs):
        raise Unusable(f"has {len(inputs)} inputs and {len(outputs)} outputs")
    return list(zip(inputs, outputs, strict=True))


def _join_lines(text: Any) -> str:
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if not isinstance(text, str):
        raise Unusable(f"a test of standard input and output holds {type(text).__name__}, not text")
    return text


def _unwrap_values(outputs: Any) -> Any:
    """Return the values of outputs that are each in a list of one, as most of APPS are."""
    if isinstance(outputs, list) and all(
        isinstance(value, list) and len(value) == 1 for value in outputs
    ):
        return [value[0] for value in outputs]
    return outputs


def _read_contest_tests(values: _Values, column: str) -> _Cases:
    tests = _decode_object(values, column)
    return _build_runs(tests.get("input", []), tests.get("output", []))


def _read_live_tests(tests: Any, function: str | None) -> _Cases:
    """Return the cases of LiveCodeBench's tests. Those of functions have one JSON argument a
    line."""
    cases: _Cases = []
    try:
        for test in tests:
            if test["testtype"] == "stdin":
                cases += _build_runs([test["input"]], [test["output"]])
                continue
            if not function:
                raise Unusable("metadata: names no function")
            arguments = [parse_strict_json(line) for line in test["input"].splitlines() if line]
            cases += _build_calls(function, [arguments], [parse_strict_json(test["output"])])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unusable(f"a test cannot be read: {error!r}") from None
    return cases


def _decode_packed(values: _Values, column: str) -> Any:
    """Return tests that are JSON, or JSON that is pickled, compressed by zlib, and in base64."""
    cell = values.get(column)
    if not isinstance(cell, str) or cell.lstrip().startswith("["):
        return _decode_json(values, column) if cell else []
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(cell, validate=True), MAX_TESTS_BYTES)
        if not unpacker.eof:
            raise Unusable(f"{column}: is cut off, or longer than {MAX_TESTS_BYTES} bytes")
        return parse_strict_json(_read_pickled_text(data))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise Unusable(f"{column}: cannot be decoded: {error}") from None


def _read_pickled_text(data: bytes) -> str:
    """Return the text that was pickled. Raises ValueError for a pickle of anything else.

    The pickle is read and never loaded: loading can run code, and fill the memory.
    """
    texts = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _TEXT_OPCODES:
            texts.append(argument)
        elif opcode.name not in _FRAMING_OPCODES:
            raise ValueError(f"the pickle holds more than a text: {opcode.name}")
    if len(texts) != 1:
        raise ValueError(f"the pickle holds {len(texts)} texts")
    return str(texts[0])


def _decode_json(values: _Values, column: str) -> Any:
    """Return the value of a cell, which may be JSON text. Raises Unusable."""
    cell = values.get(column)
    if cell in (None, ""):
        raise Unusable(f"{column}: is missing or empty")
    if not isinstance(cell, str):
        return cell
    try:
        return parse_strict_json(cell)
    except ValueError as error:
        raise Unusable(f"{column}: is not JSON: {error}") from None


def _decode_object(values: _Values, column: str) -> Mapping[str, Any]:
    """Return the object in a cell; an empty one where the cell is empty. Raises Unusable."""
    value = _decode_json(values, column) if values.get(column) else {}
    if not isinstance(value, Mapping):
        raise Unusable(f"{column}: is {type(value).__name__}, not an object")
    return value


def _choose_python(solutions: Any) -> str | None:
    """Return the first solution that parses as Python 3; many of these sets are in Python 2."""
    if not isinstance(solutions, list):
        raise Unusable("solutions: is no list")
    for solution in solutions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ast.parse(solution)
            except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
                continue
        return str(solution)
    return None


def _require_python(language: str) -> None:
    if language != "python":
        raise Unusable(f"its tests call a Python function, so it cannot be asked in {language}")


def _parse_number(values: _Values, column: str) -> float | None:
    """Return the number that a cell begins with: 2.0 of `2.0 seconds`."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", str(values.get(column) or ""))
    return float(match[1]) if match else None


def _parse_mib(values: _Values) -> float | None:
    """Return TACO's `memory_limit` in MiB; None where its unit is another one."""
    if "megabyte" not in str(values.get("memory_limit")):
        return None
    return _parse_number(values, "memory_limit")


def _build_limits(cpu_s: float | None, memory_mib: float | None) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if cpu_s:
        limits["cpu_s"] = min(cpu_s, 600.0)
    if memory_mib:
        limits["memory_mb"] = min(max(int(memory_mib), 16), 16384)
    return {"limits": limits} if limits else {}
