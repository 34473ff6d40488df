"""Doubles, leaks and splits of files of tasks: what is alike is found, by content, whatever the
order."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from corpus.contamination import EvalIndex
from corpus.duplicates import find_duplicates
from corpus.files import refuse_existing, write_rows
from corpus.repair_prompt import extract_quotes
from corpus.similarity import (
    NGRAM_LENGTH,
    SIMILAR,
    build_ngrams,
    find_similar_pairs,
    join_words,
    split_words,
)
from corpus.splitting import split
from gradus.errors import Misuse
from gradus.row_reader import Row
from tests.conftest import Cli

LONG = (
    "Write a function that takes the readings of a gauge by the harbour and returns the greatest"
    " change from one reading to the next, or nothing when there are fewer than two of them."
)
CODE = (
    "let rec change = function\n  | [] | [ _ ] -> None\n  | a :: (b :: _ as rest) ->\n    let d = b"
    " - a in\n    (match change rest with Some c when c > d -> Some c | _ -> Some d)\n"
)


def rows(*values: dict[str, Any]) -> list[Row]:
    return [Row(f"file.jsonl:{number}", value) for number, value in enumerate(values, start=1)]


def task(name: str, prompt: str = "", **more: Any) -> dict[str, Any]:
    prompt = prompt or f"Task {name} asks for {name} {name * 2} and for {name * 3} too"
    return {"id": name, "prompt": prompt, "tests": f"assert ({name} = 1)", **more}


def jsonl(path: Path, values: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in values))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---------------------------------------------------------------------------------------- likeness


def test_every_pair_that_is_alike_enough_is_found_and_no_other() -> None:
    """Texts of a family lack some words at their start: 0 to 22 of 60."""
    texts = []
    for family in range(20):
        all_words = [f"w{family}x{number}" for number in range(60)]
        texts += [" ".join(all_words[cut:]) for cut in range(0, 24, 2)]
    grams = [build_ngrams(text.split(), NGRAM_LENGTH) for text in texts]
    wanted = set()
    for a, b in combinations(range(len(texts)), 2):
        if len(grams[a] & grams[b]) / len(grams[a] | grams[b]) >= SIMILAR:
            wanted.add((a, b))
    assert len(wanted) > 500
    assert {(a, b) for a, b, _ in find_similar_pairs(texts)} == wanted


def test_a_text_shorter_than_a_run_is_one_run() -> None:
    assert build_ngrams(["a", "b"], 5) == frozenset({"a b"})
    assert build_ngrams([], 5) == frozenset()
    assert len(build_ngrams(list("abcdefg"), 5)) == 3


def test_case_width_and_punctuation_do_not_make_texts_differ() -> None:
    assert (
        join_words("Sum, the  LIST!") == join_words("sum the list") == join_words("ｓｕｍ the list")
    )
    assert split_words("a-b_c") == ["a", "b_c"]


# ----------------------------------------------------------------------------------------- doubles


def reasons(*values: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of each double its id, the id of the row that stays, and the reason."""
    told = []
    for one in find_duplicates(rows(*values)):
        reason, _, place = one.problems[0].partition(", at ")
        [kept] = [row for row in rows(*values) if row.where == place]
        told.append((one.row.values["id"], kept.values["id"], reason))
    return told


def test_the_same_prompt_or_tests_make_a_double_and_the_first_stays() -> None:
    a = task("a", LONG)
    b = task("b", LONG.upper())
    c = task("c") | {"tests": "assert  (a=1)"}
    assert reasons(a, b, c) == [("b", "a", "the same prompt"), ("c", "a", "the same tests")]
    assert reasons(b, a, c)[0] == ("a", "b", "the same prompt")


def test_nearly_the_same_prompt_makes_a_double() -> None:
    near = LONG.replace("fewer than two of them", "fewer than two of these")
    [(row, of, reason)] = reasons(task("a", LONG), task("b", near))
    assert (row, of) == ("b", "a")
    assert reason.endswith("% of the runs of 5 words of the prompt")


def test_other_tasks_are_no_doubles() -> None:
    assert reasons(task("a", LONG), task("b"), task("c")) == []


def test_variants_of_one_task_stay_unless_their_prompt_is_the_same() -> None:
    a = task("a", LONG)
    repair = a | {"id": "a~1", "group": "a", "prompt": LONG + " This code is broken."}
    other = repair | {"id": "a~2", "prompt": LONG + " This code is not right."}
    assert reasons(a, repair, other) == []
    assert reasons(a, repair, repair | {"id": "a~3"}) == [("a~3", "a~1", "the same prompt")]


def test_rows_without_prompt_and_tests_are_left_alone() -> None:
    assert (
        reasons({"id": "a"}, {"id": "b"}, {"id": "c", "prompt": None}, {"id": "d", "prompt": []})
        == []
    )


def test_a_chain_of_near_doubles_keeps_one_of_those_that_are_alike() -> None:
    kept = task("a", LONG)
    steps = [task(name, LONG.removesuffix("them.") + name) for name in "bcdef"]
    assert {row for row, _, _ in reasons(kept, *steps)} == set("bcdef")


def test_dedupe_writes_what_stays_and_why_the_others_went(gradus: Cli, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [task("a", LONG), task("b", LONG), task("c")])
    said = gradus("tasks", "dedupe", source, "-o", tmp_path / "out.jsonl")
    assert (said.status, [row["id"] for row in read(tmp_path / "out.jsonl")]) == (0, ["a", "c"])
    [gone] = read(tmp_path / "out.duplicates.jsonl")
    assert (gone["id"], gone["reasons"]) == ("b", [f"the same prompt, at {source}:1"])
    assert gone["where"] == f"{source}:2"
    assert "2 of 3 rows are in" in said.out


# ------------------------------------------------------------------------------------------- leaks


def find_leaks(trained: dict[str, Any], *measured: dict[str, Any]) -> list[str]:
    evaluation = EvalIndex(rows(*measured))
    return [reason.rpartition(", at ")[0] for reason in evaluation.find_leaks(trained)]


def test_equal_names_texts_and_answers_are_leaks() -> None:
    measured = task("a", LONG, title="Greatest Change", solution=CODE, group="gauge")
    assert find_leaks(task("x", title="greatest change"), measured) == [
        "the same title: greatest change"
    ]
    assert find_leaks(task("gauge"), measured) == ["the same id or group: gauge"]
    assert "the same solution" in find_leaks(task("x", solution=CODE.replace("  ", "\t")), measured)
    assert find_leaks(task("x") | {"tests": "assert(a=1)"}, measured) == ["the same tests"]
    assert find_leaks(task("x", LONG.lower()), measured)[0] == "the same prompt"


def test_thirteen_words_in_a_row_are_a_leak_and_twelve_are_not() -> None:
    measured = task("a", LONG)
    some = LONG.split()
    assert find_leaks(task("x", "Now then: " + " ".join(some[3:15])), measured) == []
    [reason] = find_leaks(task("x", "Now then: " + " ".join(some[3:16])), measured)
    assert reason.startswith("the same run of 13 words: that takes the readings of")


def test_a_whole_prompt_of_six_words_is_a_run_and_one_of_five_is_not() -> None:
    for text, counted in (
        ("reverse every list of the tree", 1),
        ("reverse every list of trees", 0),
    ):
        reasons = find_leaks(task("x", text), task("a", text))
        assert sum(reason.startswith("the same run of 13 words") for reason in reasons) == counted


def test_long_runs_of_code_are_a_leak_wherever_they_stand() -> None:
    measured = task("a", solution=CODE)
    for column in ("solution", "stub", "completion"):
        [reason] = find_leaks(task("x") | {column: "let extra = 1\n" + CODE}, measured)
        assert reason.startswith("the same run of 50 code tokens: ")
    assert find_leaks(task("x", solution="let extra = 1\n" + CODE[:60]), measured) == []


def test_a_task_under_task_is_looked_into() -> None:
    nested = {"id": "x", "prompt": "p", "task": {"tests": "assert (a = 1)"}}
    assert find_leaks(nested, task("a")) == ["the same tests"]


def test_wording_that_many_problems_share_gives_nothing_away() -> None:
    ending = (
        " Answer with the code only and use nothing but the standard library of the language,"
        " please."
    )
    measured = [task(name, f"Compute {name * 3}." + ending) for name in "abcdef"]
    assert find_leaks(task("x", "Compute something else." + ending), *measured) == []
    assert find_leaks(task("x", "Compute something else." + ending), *measured[:2]) != []


def test_variants_of_one_problem_do_not_make_its_text_wording() -> None:
    variants = [
        task("a", LONG + f" Variant {number}.") | {"id": f"a{number}"} for number in range(9)
    ]
    assert find_leaks(task("x", LONG), *variants) != []


def test_the_wording_of_repair_prompts_is_no_leak() -> None:
    from corpus.repair_prompt import render_repair_prompt

    one = render_repair_prompt(
        "Add one.", "ocaml", "let f x = x", "types: line 1, column 2: error: " + "wrong " * 20
    )
    other = render_repair_prompt(
        "Turn it.", "ocaml", "let g y = y", "types: line 1, column 2: error: " + "wrong " * 20
    )
    message = "types: line 1, column 2: error: " + "wrong " * 20
    assert find_leaks(task("x", one, message=message), task("a", other, message=message)) == []
    assert extract_quotes("Just a prompt.", "") == ["Just a prompt."]
    long = render_repair_prompt(LONG, "ocaml", "let f x = x", "m")
    assert find_leaks(task("x", long, message="m"), task("a", LONG)) != []


def test_decontaminate_tells_each_reason_with_its_place(gradus: Cli, tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", [task("a"), task("b", LONG), task("c")])
    one = jsonl(tmp_path / "one.jsonl", [task("z", LONG)])
    two = jsonl(tmp_path / "two.jsonl", [task("c") | {"tests": "x"}])
    argv = (
        "tasks",
        "decontaminate",
        train,
        "--against",
        one,
        "--against",
        two,
        "-o",
        tmp_path / "out.jsonl",
    )
    said = gradus(*argv)
    assert (said.status, [row["id"] for row in read(tmp_path / "out.jsonl")]) == (0, ["a"])
    b, c = read(tmp_path / "out.contaminated.jsonl")
    assert (b["id"], b["reasons"][0]) == ("b", f"the same prompt, at {one}:1")
    assert c["reasons"][0].endswith(f", at {two}:1")
    assert "1 of 3 rows are in" in said.out
    assert gradus(*argv).status == 2, "nothing is replaced unasked"


# ------------------------------------------------------------------------------------------ splits


def family(name: str, size: int) -> list[dict[str, Any]]:
    return [task(f"{name}{n}") | {"group": name} for n in range(size)]


def many() -> list[dict[str, Any]]:
    return [row for number in range(30) for row in family(f"g{number}x", 1 + number % 4)]


def ids(found: list[Row]) -> list[str]:
    return [row.values["id"] for row in found]


def test_variants_are_never_on_both_sides() -> None:
    train, measured, problems = split(rows(*many()), 0.2, 42)
    trained = {row.values["group"] for row in train}
    assert trained.isdisjoint(row.values["group"] for row in measured)
    assert problems == 30
    assert len(measured) == round(0.2 * len(many()))


@pytest.mark.parametrize(
    "tie",
    [
        {"group": "a"},
        {"tests": "assert (a = 1)"},
        {"prompt": "Task a asks for A aa, and for aaa too!"},
        {"prompt": LONG + " Always."},
        {"solution": CODE},
    ],
)
def test_each_thing_that_makes_rows_one_problem_keeps_them_together(tie: dict[str, Any]) -> None:
    first = task("a", **({"solution": CODE} if "solution" in tie else {}))
    if tie.get("prompt", "").startswith("Write"):
        first = task("a", LONG)
    values = [
        first,
        task("b") | tie,
        *(task(name) for name in ("cc", "dd", "ee", "ff", "gg", "hh")),
    ]
    for seed in range(12):
        train, measured, _ = split(rows(*values), 0.3, seed)
        sides = [{"a", "b"} & set(ids(side)) for side in (train, measured)]
        assert set() in sides, f"seed {seed}"


def test_the_order_of_rows_changes_nothing() -> None:
    values = many()
    mixed = random.Random(1).sample(values, len(values))
    _, measured, _ = split(rows(*values), 0.2, 7)
    _, of_mixed, _ = split(rows(*mixed), 0.2, 7)
    _, of_another_seed, _ = split(rows(*values), 0.2, 8)
    assert set(ids(measured)) == set(ids(of_mixed))
    assert ids(measured) != ids(of_another_seed)


@pytest.mark.parametrize("share", [0.0, 1.0, 0.01])
def test_a_side_without_rows_is_misuse(share: float) -> None:
    with pytest.raises(Misuse, match="leaves one side empty: there are 2 problems"):
        split(rows(*family("a", 3), *family("b", 4)), share, 42)


def test_split_writes_both_sides(gradus: Cli, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", many())
    train = tmp_path / "train.jsonl"
    measured = tmp_path / "eval.jsonl"
    said = gradus(
        "tasks", "split", source, "--train", train, "--eval", measured, "--eval-fraction", "0.2"
    )
    assert said.status == 0, said.err
    assert sorted(row["id"] for row in read(train) + read(measured)) == sorted(
        row["id"] for row in many()
    )
    assert "30 problems in all" in said.out
    again = gradus("tasks", "split", source, "--train", train, "--eval", measured)
    assert again.status == 2
    same = gradus("tasks", "split", source, "--train", train, "--eval", train, "--force")
    assert "are the same file" in same.err


# ------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("command", ["dedupe", "split", "decontaminate", "mutate", "trajectories"])
def test_a_broken_line_is_misuse_with_file_and_line(
    gradus: Cli, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"id": "a", "prompt": "p"}\n{"id": }\n')
    out = (
        ("--train", tmp_path / "a", "--eval", tmp_path / "b")
        if command == "split"
        else ("-o", tmp_path / "out.jsonl")
    )
    more = ("--against", file) if command == "decontaminate" else ()
    said = gradus("tasks", command, file, *out, *more)
    assert said.status == 2
    assert f"{file}:2: is not JSON" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_what_fails_while_it_is_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "out.jsonl", [{"id": "old"}])
    with pytest.raises(ValueError):
        write_rows(path, [{"id": "new"}, {"id": float("nan")}])
    assert [row["id"] for row in read(path)] == ["old"]
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]


def test_half_characters_are_passed_on_as_they_came(gradus: Cli, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [task("a", "half \ud800 a character"), task("b", "groß")])
    assert gradus("tasks", "dedupe", source, "-o", tmp_path / "out.jsonl").status == 0
    assert read(tmp_path / "out.jsonl") == read(source)
    assert "groß" in (tmp_path / "out.jsonl").read_text(), "what UTF-8 can hold is written in it"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("in.jsonl", "is also an input"),
        ("there", "is a folder"),
        ("missing/out.jsonl", "one that does not exist"),
    ],
)
def test_places_that_cannot_be_written_are_refused_before_any_work(
    tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "in.jsonl").touch()
    with pytest.raises(Misuse, match=told):
        refuse_existing([tmp_path / name], force=True, sources=[tmp_path / "in.jsonl"])


def test_a_link_onto_the_source_is_the_source(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("in.jsonl")
    with pytest.raises(Misuse, match="is also an input"):
        refuse_existing([tmp_path / "link.jsonl"], force=True, sources=[tmp_path / "in.jsonl"])
