"""Records of HumanEval and MBPP in Python, made into tasks of the program grader whose cases call a
function. Runs nothing.

Assertions become cases: `assert f(1) == 2`, `assert f(1)`, `assert not f(1)` and
`assert abs(f(1) - 0.5) < 1e-6`, with literal arguments and values. A record with any other
assertion or statement is left out: its remaining cases would accept answers that its tests refuse.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from corpus.drafts import Unusable, get_text, require_text
from corpus.program_problems import STUBS

_Values = Mapping[str, Any]
_Case = dict[str, Any]


def convert_humaneval(values: _Values) -> dict[str, Any]:
    """Return the fields of the task of a record of HumanEval, HumanEval-X or HumanEvalPack in
    Python. Raises Unusable."""
    tests = require_text(values, "test", "tests")
    called = re.search(r"^\s*check\((\w+)\)", tests, re.MULTILINE)
    entry = get_text(values, "entry_point") or (called[1] if called else None)
    if entry is None:
        raise Unusable("entry_point: is missing, and the tests check no function")
    beginning = require_text(values, "prompt")
    cases, tolerance = _convert_assertions(_find_assertions(tests), {"candidate": entry})
    task = {
        "prompt": (
            "Complete this Python function. Answer with its whole definition and all that it"
            f" needs.\n\n```python\n{beginning.strip()}\n```"
        ),
        "language": "python",
        "cases": cases,
        "stub": STUBS["python"],
        **tolerance,
    }
    code = get_text(values, "declaration") or beginning
    solution = get_text(values, "canonical_solution", "solution")
    if solution:
        task["solution"] = code + solution
    buggy = get_text(values, "buggy_solution")
    if buggy:
        task["stub"] = code + buggy
    return task


def convert_mbpp(values: _Values) -> dict[str, Any]:
    """Return the fields of the task of a record of MBPP or its sanitized version. Raises Unusable.

    The prompt shows the first assertion, which names the function. It is a public case; the others
    stay hidden.
    """
    if get_text(values, "test_setup_code") or values.get("test_imports"):
        raise Unusable("its tests need code or imports of their own")
    lines = [*_read_list(values, "test_list"), *_read_list(values, "challenge_test_list")]
    if len(lines) < 2:
        raise Unusable("test_list: has fewer than two assertions, so none could stay hidden")
    assertions = _parse("\n".join(lines))
    cases, tolerance = _convert_assertions(assertions, {})
    described = require_text(values, "text", "prompt").strip()
    task = {
        "prompt": f"{described}\n\nWrite Python that satisfies:\n\n```python\n{lines[0]}\n```",
        "language": "python",
        "public_cases": cases[:1],
        "cases": cases[1:],
        "stub": STUBS["python"],
        "group": f"mbpp/{values.get('task_id')}",
        **tolerance,
    }
    solution = get_text(values, "code")
    if solution:
        task["solution"] = solution
    return task


def _read_list(values: _Values, column: str) -> list[str]:
    """Return the texts of a column that holds a list, as such or as a text."""
    cell = values.get(column) or []
    if isinstance(cell, str):
        cell = _evaluate(_parse(cell)[0])
    if not isinstance(cell, list) or not all(isinstance(line, str) for line in cell):
        raise Unusable(f"{column}: is no list of texts")
    return [line.strip() for line in cell]


def _parse(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unusable(f"its tests do not parse: {error}") from None


def _find_assertions(tests: str) -> list[ast.stmt]:
    """Return the statements of `check(candidate)`."""
    for statement in _parse(tests):
        if isinstance(statement, ast.FunctionDef) and statement.name == "check":
            return statement.body
    raise Unusable("its tests define no function `check`")


def _convert_assertions(
    statements: list[ast.stmt], renamed: Mapping[str, str]
) -> tuple[list[_Case], dict[str, float]]:
    """Return a case per assertion, and the task's `tolerance` where an assertion has one.

    `renamed`: names in calls that stand for another function.
    """
    cases = []
    tolerances = []
    for statement in statements:
        if isinstance(statement, ast.Pass) or _is_always_true(statement):
            continue
        if not isinstance(statement, ast.Assert):
            raise Unusable(f"its tests are more than assertions: {_quote(statement)}")
        case, tolerance = _convert_assertion(statement.test, renamed)
        cases.append(case)
        if tolerance is not None:
            tolerances.append(tolerance)
    if not cases:
        raise Unusable("has no tests")
    return cases, {"tolerance": min(tolerances)} if tolerances else {}


def _is_always_true(statement: ast.stmt) -> bool:
    """Return whether a statement is `assert True`, of which HumanEval has some, or a docstring."""
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and bool(statement.test.value)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _convert_assertion(test: ast.expr, renamed: Mapping[str, str]) -> tuple[_Case, float | None]:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
            return _build_case(call, False, renamed), None
        case ast.Call():
            return _build_case(test, True, renamed), None
        case ast.Compare(
            left=ast.Call() as call, ops=[ast.Eq() | ast.Is()], comparators=[expected]
        ):
            return _build_case(call, _evaluate(expected), renamed), None
        case ast.Compare(  # abs(call - value) < tolerance
            left=ast.Call(
                func=ast.Name(id="abs"),
                args=[ast.BinOp(left=ast.Call() as call, op=ast.Sub(), right=expected)],
            ),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[bound],
        ):
            value = float(_evaluate(expected))
            return _build_case(call, value, renamed), float(_evaluate(bound))
    raise Unusable(f"an assertion is no call that has a value: {_quote(test)}")


def _build_case(call: ast.Call, expected: Any, renamed: Mapping[str, str]) -> _Case:
    if not isinstance(call.func, ast.Name) or call.keywords:
        raise Unusable(f"an assertion is no plain call: {_quote(call)}")
    function = renamed.get(call.func.id, call.func.id)
    arguments = []
    for argument in call.args:
        arguments.append(_require_json(_evaluate(argument), is_argument=True))
    value = _require_json(expected, is_argument=False)
    return {"call": {"function": function, "arguments": arguments}, "equals": value}


def _evaluate(expression: ast.AST) -> Any:
    """Return the value of a literal. Raises Unusable for anything that would have to be run."""
    if isinstance(expression, ast.Expr):
        expression = expression.value
    try:
        return ast.literal_eval(_Arithmetic().visit(expression))
    except (ValueError, TypeError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        raise Unusable(f"its tests hold more than literals: {_quote(expression)}") from None


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_MAX_OPERAND = 10_000
"""Largest number in arithmetic, so that no result is large."""


class _Arithmetic(ast.NodeTransformer):
    """Puts the value of `3 * 19` or `2.0 / 3.0` in its place, as HumanEval's tests have them."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        operands: list[float] = []
        for side in (node.left, node.right):
            value = side.value if isinstance(side, ast.Constant) else None
            if not isinstance(value, int | float):
                return node
            operands.append(value)
        compute = _OPERATORS.get(type(node.op))
        limit = 100 if isinstance(node.op, ast.Pow) else _MAX_OPERAND
        if compute is None or max(map(abs, operands)) > limit:
            return node
        return ast.copy_location(ast.Constant(compute(*operands)), node)


def _require_json(value: Any, *, is_argument: bool) -> Any:
    """Return the value as JSON has it. A tuple that is returned is compared as a list; one that is
    passed would become a list, which is another argument."""
    if isinstance(value, tuple) and not is_argument:
        value = list(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_require_json(part, is_argument=is_argument) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = value.items()
        return {key: _require_json(part, is_argument=is_argument) for key, part in parts}
    raise Unusable(f"JSON has no {type(value).__name__}, which its tests hold: {value!r:.80}")


def _quote(node: ast.AST) -> str:
    return f"`{ast.unparse(node)[:80]}`"
