"""Takes away what holds a grader's container in, one setting at a time: its worker must not serve,
and must name it.

Usage: container_hardening.py NETWORK GRADER..., NETWORK being an internal one with a Redis that is
called walled-redis; GRADUS_TAG names the images. Exit status 1 with the first worker that serves,
or names another setting, or more than the one. Reads docker-compose.yml, so that what is taken away
is what is there; a setting that it does not know ends it. Needs podman and PyYAML, nothing of the
project. Does not look at boxes: that they hold is the probe's.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
NO_WALLS = {
    *(
        "build",
        "command",
        "depends_on",
        "healthcheck",
        "environment",
        "image",
        "logging",
        "profiles",
        "restart",
        "secrets",
    ),
    "stop_grace_period",
}
"""What says how a service runs, and holds nothing in."""
VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
"""A variable of docker-compose.yml, with its default."""
DOCKERS_PROFILE = "deploy/docker/seccomp-docker-default.json"


@dataclass(frozen=True)
class Wall:
    """A setting of docker-compose.yml as podman has it, and what is there without it."""

    setting: str
    option: str
    says: str = ""
    """What the worker's refusal has in it; empty for what cannot be told from its absence on every
    host."""
    instead: str = ""
    """podman's option in its place, where leaving it out is no choice."""


def walls(service: dict[str, Any], network: str) -> list[Wall]:
    """Every wall of a grader's service. Raises ValueError for a setting of which nobody knows
    whether it is one."""
    found = [
        wall
        for key, value in service.items()
        if key not in NO_WALLS
        for wall in _of(key, value, network)
    ]
    if all(
        wall.says != "  - seccomp: " for wall in found
    ):  # nothing in the file asks for what holds all the same
        found.append(
            Wall(
                "the engine's own profile", "", "  - seccomp: ", "--security-opt=seccomp=unconfined"
            )
        )
    return found


def _of(key: str, value: Any, network: str) -> Iterator[Wall]:
    match key:
        case "user":
            yield Wall(f"user: {value}", f"--user={value}", "  - user: ", "--user=0:0")
        case "cap_drop":
            yield Wall(f"cap_drop: {value}", f"--cap-drop={','.join(value)}", "  - capabilities: ")
        case "read_only" if value is True:
            yield Wall("read_only: true", "--read-only", "  - root: ")
        case "tmpfs":
            yield from (Wall(f"tmpfs: {mount}", f"--tmpfs={mount}", "  - tmp: ") for mount in value)
        case "mem_limit":
            size = VARIABLE.sub(r"\1", value)
            yield Wall(f"mem_limit: {size}", f"--memory={size}", "  - memory: ")
        case "pids_limit":
            yield Wall(
                f"pids_limit: {value}",
                f"--pids-limit={value}",
                "  - processes: ",
                "--pids-limit=-1",
            )
        case "networks":
            yield Wall(f"networks: {value}", f"--network={network}", "  - network: ")
        case "volumes" if all(str(volume).endswith(":ro") for volume in value):
            pass  # a way in for files, and none out
        case "security_opt":
            for option in value:
                yield from _of_security(option)
        case _:
            raise ValueError(f"«{key}: {value}» of a grader: is it a wall? Nobody takes it away")


def _of_security(option: str) -> Iterator[Wall]:
    name, _, value = option.partition("=")
    given = f"--security-opt={option}"
    match name:
        case "no-new-privileges":
            yield Wall(option, f"--security-opt={name}", "  - privileges: ")
        case "seccomp":
            yield Wall(option, given, "  - seccomp: ", "--security-opt=seccomp=unconfined")
            docker = f"--security-opt=seccomp={DOCKERS_PROFILE}"
            # the engine's is looser with podman than with Docker: what refuses is Docker's
            yield Wall(f"{option}, Docker's own there", given, value.removeprefix("./"), docker)
        case "apparmor":
            yield Wall(option, given)
        case _:
            raise ValueError(
                f"«security_opt: {option}» of a grader: is it a wall? Nobody takes it away"
            )


def command(grader: str, service: dict[str, Any], given: list[Wall], without: Wall) -> list[str]:
    """`podman run` of a worker between all walls of `given` but one."""
    options = dict.fromkeys(
        wall.option for wall in given if wall.option and wall.option != without.option
    )
    place = [without.instead] if without.instead else []
    image = f"gradus-grader-{grader}:{os.environ.get('GRADUS_TAG', 'e2e')}"
    confined = (
        f"--env=GRADUS_REQUIRE_HARDENING={service['environment']['GRADUS_REQUIRE_HARDENING']}"
    )
    worker = ["gradus", "worker", grader, "--redis", "redis://walled-redis:6379/0"]
    return ["timeout", "120", "podman", "run", "--rm", *options, *place, confined, image, *worker]


def refusal(grader: str, service: dict[str, Any], given: list[Wall], without: Wall) -> str:
    """What the worker says of the wall that is not there. Raises ValueError if it serves, or says
    anything else."""
    done = subprocess.run(
        command(grader, service, given, without), cwd=ROOT, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    named = [line for line in said.splitlines() if without.says in line]
    if done.returncode in (0, 124) or not named:
        raise ValueError(
            f"{grader} serves without «{without.setting}», or does not say so:\n{said}"
        )
    if len([line for line in said.splitlines() if line.startswith("  - ")]) > 1:
        raise ValueError(f"{grader} misses more than «{without.setting}»:\n{said}")
    return named[0].strip().removeprefix("- ")


def main(network: str, graders: list[str]) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for grader in graders:
        service = services[f"grader-{grader}"]
        given = walls(service, network)
        for wall in given:
            said = (
                f"refuses, «{refusal(grader, service, given, wall)[:110]}»"
                if wall.says
                else "not tried"
            )
            print(f"  {grader} without {wall.setting}: {said}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except ValueError as error:
        sys.exit(str(error))
