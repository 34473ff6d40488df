"""Hostile OCaml answers, one file each: no unearned credit, the host as it was, the grader as able as before.

What the comment at the head of a file means is in `gradus/attacks.py`.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.attacks import RIGHT, Attack, filled_in, load_attacks
from gradus.contract import Graded
from services.facts import Facts
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.trial import Trial

ATTACKS = {attack.name: attack for attack in load_attacks(Path(__file__).parent / "ocaml")}
RUBRIC = "ocaml/graduated@1"
VARIANTS = ("declared assert", "undeclared ounit2", "cold undeclared assert")


class OnlyCold(OcamlGrader):
    def _judged(self, trial: Trial) -> Facts:
        return self.cold.facts(trial)


def attacks() -> Iterator[Any]:
    for attack in ATTACKS.values():
        for variant in VARIANTS:
            cold = variant.startswith("cold")
            # with packages there is one way only, the cold one
            if not (cold and attack.only_warm) and (variant == VARIANTS[0] or not attack.packages):
                yield pytest.param(attack, variant, id=f"{attack.name}-{variant}")


# ------------------------------------------------------------------------------------------------------------- host


@dataclass
class Host:
    """What an attack could leave behind or touch."""

    folder: Path
    port: int
    marker: str = field(default_factory=lambda: f"marker{secrets.token_hex(6)}")

    def fill_in(self, source: str) -> str:
        return filled_in(source, {"CANARY": self.folder, "PORT": self.port, "PID": os.getpid(), "MARKER": self.marker})

    def places_of_the_marker(self) -> list[str]:
        places = {Path("/"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.cwd(), Path.home(), self.folder}
        return [str(place) for place in places if (place / self.marker).exists()]


@contextmanager
def watched(tmp_path: Path) -> Iterator[Host]:
    """A host that must be the same afterwards."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and parent.is_relative_to(tmp_path.parent.parent):
            parent.chmod(0o777 if parent == folder else 0o755)
    canary = folder / "canary"
    canary.write_text("as it was")
    canary.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host = Host(folder, server.getsockname()[1])
        yield host
        with pytest.raises(BlockingIOError):  # nobody called
            server.accept()
    assert [file.name for file in folder.iterdir()] == ["canary"]
    assert canary.read_text() == "as it was"
    assert host.places_of_the_marker() == []


def descendants() -> int:
    """Processes that descend from this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return len(ours) - 1


# ---------------------------------------------------------------------------------------------------------- attacks


def grader_for(attack: Attack, variant: str, usual: OcamlGrader, tmp_path: Path) -> OcamlGrader:
    if attack.wall_s is not None:
        settings = usual.config.model_dump()
        settings["run"]["wall_s"] = attack.wall_s
        file = tmp_path / "ocaml.yaml"
        file.write_text(yaml.safe_dump(settings))
        return OcamlGrader(file, usual.sandbox)
    return OnlyCold(sandbox=usual.sandbox) if variant.startswith("cold") else usual


def grade(grader: OcamlGrader, completion: str, attack: Attack, variant: str) -> Graded:
    declared, ounit = "undeclared" not in variant, "ounit2" in variant
    return grader.grade(attack.submission(completion, declared=declared, ounit=ounit), RUBRIC, 0)


@pytest.mark.parametrize(("attack", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    ocaml_grader: OcamlGrader, tmp_path: Path, attack: Attack, variant: str
) -> None:
    grader = grader_for(attack, variant, ocaml_grader, tmp_path)
    usual = Attack("right", RIGHT, "", packages=attack.packages)
    assert grade(ocaml_grader, RIGHT, usual, VARIANTS[0]).passed  # makes the standing boxes, too
    before = descendants()
    with watched(tmp_path) as host:
        result = grade(grader, host.fill_in(attack.source), attack, variant)
    assert attack.got_through(result) is None, result
    assert not result.passed, result
    assert grade(grader, RIGHT, usual, variant).passed
    assert descendants() <= before


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 70
    assert [attack.name for attack in ATTACKS.values() if "```" in attack.source] == []
