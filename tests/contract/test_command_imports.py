"""`gradus --help` and the help of each wing's commands import nothing heavy, and of a wing only its
commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WINGS = ("services", "trainer", "corpus")
HEAVY = frozenset(
    {
        "torch",
        "trl",
        "transformers",
        "datasets",
        "fastapi",
        "starlette",
        "uvicorn",
        "uvloop",
        "redis",
        "httpx",
    }
    | {"numpy", "scipy", "onnxruntime", "tokenizers", "opentelemetry", "prometheus_client"}
)
PROGRAM = """
import json, sys
from gradus.cli import main
sys.argv = ["gradus", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    print(json.dumps({"status": ended.code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("serve",),
        ("train",),
        ("tasks", "import"),
        *(
            pytest.param(words, marks=pytest.mark.slow, id=" ".join(words))
            for words in (
                ("grade",),
                ("worker",),
                ("keys", "new"),
                ("eval",),
                ("pipeline", "run"),
                ("tasks", "validate"),
                ("doctor",),
            )
        ),
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["status"] == 0, done.stderr
    assert "Usage" in done.stdout
    modules = set(told["modules"])
    # Typer loads pydantic itself, for the options of one command
    assert {name.partition(".")[0] for name in modules} & (
        HEAVY if words else HEAVY | {"pydantic"}
    ) == set()
    of_wings = {name for name in modules if name.partition(".")[0] in WINGS}
    assert {f"{wing}.commands" for wing in WINGS} <= of_wings
    assert [
        name for name in sorted(of_wings) if not re.fullmatch(r"\w+(\.commands(\.\w+)?)?", name)
    ] == []


def test_the_ground_floor_names_no_wing() -> None:
    """Also not in functions: a wing is found by its entry points (`gradus.wings`)."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "gradus").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.match(r"\s*(from|import)\s+(services|trainer|corpus|tools)\b", line)
    ]
    assert found == []


@pytest.mark.parametrize("grader", ["ocaml", "rust", "story", "preference"])
def test_the_module_of_a_grader_loads_no_torch(grader: str) -> None:
    """Also not the grader that runs its model on torch: without it, that grader must say what to
    install."""
    program = f"import sys, services.graders.{grader}.grader; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"services.graders.{grader}.config" in done.stdout.split()
    assert {"torch", "transformers", "sentence_transformers"} & set(done.stdout.split()) == set()
