"""Dashboards, alert rules and the scrape configuration speak of metrics that the code exports, and
parse.

promtool (Debian's package prometheus) judges rules and queries where it is there. Grafana itself is
not run: its files are held to what its documentation asks of them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from services.api.metrics import Metrics
from services.dashboard.prometheus import METRICS, render_metrics
from services.dashboard.runs import Runs
from services.worker_metrics import WorkerMetrics
from tests.graders import GRADERS
from tests.report_runs import rich_run

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
RULES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
EVERYWHERE = {"instance", "job", "grader", "run"}
"""Labels of whoever scrapes, and those that each job adds: the grader of a worker, the run of a
trainer."""
NAME = re.compile(r"(?<![\w:])(?:gradus_|gradus:)[a-z0-9_:]+")


def exported() -> dict[str, set[str]]:
    """Every name that a scrape can show, with its labels."""
    found: dict[str, set[str]] = {}
    for registry in (Metrics().registry, WorkerMetrics().registry):
        found |= names_in(registry)
    for table in ("newest", "latest", "warm_start"):
        found |= {f"gradus_train_{name}": set() for name in METRICS[table]}
    for table in ("computed", "labelled", "families"):
        found |= {
            f"gradus_train_{name}": {entry[0]} - {None} for name, entry in METRICS[table].items()
        }
    return found


def names_in(registry: CollectorRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for collector in set(
        registry._collector_to_names
    ):  # families without a sample are not collected
        labels = set(getattr(collector, "_labelnames", ()))
        for family in (
            collector.describe() if hasattr(collector, "describe") else collector.collect()
        ):
            for suffix in SUFFIXES[family.type]:
                found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def recorded() -> dict[str, set[str]]:
    rules = [rule for group in RULES["groups"] for rule in group["rules"] if "record" in rule]
    return {
        rule["record"]: set(re.search(r"by \(([^)]*)\)", rule["expr"])[1].split(", "))
        for rule in rules
    }  # type: ignore[index]


def expressions() -> Iterator[tuple[str, str, str]]:
    """(where, expression, the text that is made of its labels) of every panel, variable and
    rule."""
    for file in DASHBOARDS:
        board = json.loads(file.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{file.stem}: {panel['title']}", target["expr"], target["legendFormat"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield (
                rule.get("alert") or rule["record"],
                rule["expr"],
                json.dumps(rule.get("annotations", {})),
            )


ALL = [pytest.param(*rest, id=where) for where, *rest in expressions()]


@pytest.mark.parametrize(("expression", "text"), ALL)
def test_every_metric_that_is_asked_for_is_exported_with_the_labels_that_are_used(
    expression: str, text: str
) -> None:
    known = exported() | recorded()
    named = set(NAME.findall(expression))
    assert named <= known.keys() or named == set()
    assert named or "up{" in expression
    labels = EVERYWHERE.union(*(known[name] for name in named))
    used = set(re.findall(r"\{\{ ?\$?(?:labels\.)?(\w+) ?\}\}", text)) - {"value"}
    used |= {
        label.strip()
        for group in re.findall(r"(?:by|on) \(([^)]*)\)", expression)
        for label in group.split(",")
    }
    used |= {
        label
        for inside in re.findall(r"\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)[=!]", inside)
    }
    assert used <= labels | {""}


async def test_a_run_exports_no_metric_of_training_that_is_unknown_here(tmp_path: Path) -> None:
    rich_run(tmp_path / "one")
    runs = Runs(tmp_path)
    await runs.read_changes()
    text = render_metrics(runs.list_runs(), 0.0).decode()
    shown = {line.split("{")[0] for line in text.splitlines() if line.startswith("gradus_train_")}
    assert {"gradus_train_step", "gradus_train_reward", "gradus_train_state"} <= shown
    assert shown <= exported().keys()


def test_the_page_of_metrics_has_every_metric_and_every_alert_with_what_to_do() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    cells = {row[0].strip("`"): row[1:] for row in rows}
    of_histograms = ("_bucket", "_sum", "_count")
    assert {name for name in exported() if not name.endswith(of_histograms)} <= cells.keys()
    for rule in (rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule):
        section = page.partition(f"\n### {rule['alert']}\n")[2].partition("\n### ")[0]
        assert rule["annotations"]["description"] in section
        assert rule["expr"] in section
    assert [name for name, (*_, meaning) in cells.items() if len(meaning) < 4] == []
    assert "{{" not in page


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_whole(file: Path) -> None:
    board = json.loads(file.read_text())
    assert board["uid"] == f"gradus-{file.stem}"
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    identities = [panel["id"] for panel in board["panels"]]
    assert len(identities) == len(set(identities))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == source["uid"], panel["title"]
            assert panel["targets"], panel["title"]
            references = [target["refId"] for target in panel["targets"]]
            assert len(references) == len(set(references)), panel["title"]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_no_panel_lies_on_another(file: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(file.read_text())["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                taken[x, y] = panel["title"]


@pytest.mark.parametrize(
    ("board", "metrics"),
    [
        (
            "graders",
            (
                "queue_jobs api_oldest_wait_seconds api_grade_seconds_bucket api_faults_total"
                " api_flags_total api_cached_results_total workers"
            ),
        ),
        (
            "training",
            (
                "train_reward train_reward_std train_frac_reward_zero_std train_entropy train_kl"
                " train_completion_tokens train_clipped_ratio train_step_part_seconds"
                " train_sync_logprob_difference_max train_held_out_pass_rate"
            ),
        ),
    ],
)
def test_a_dashboard_shows_what_it_is_there_for(board: str, metrics: str) -> None:
    text = (GRAFANA / "dashboards" / f"{board}.json").read_text()
    assert not [name for name in metrics.split() if f"gradus_{name}{{" not in text]


def test_grafana_finds_its_dashboards_where_compose_mounts_them() -> None:
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/gradus.yml").read_text())[
        "providers"
    ]
    assert provider["options"]["path"] == mounts["./deploy/grafana/dashboards"]
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (GRAFANA / "dashboards" / home.name) in DASHBOARDS
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert set(SERVICES["grafana"]["networks"]) & set(SERVICES["prometheus"]["networks"])


# ---------------------------------------------------------------------- what is asked


def scraped() -> dict[str, dict[str, Any]]:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    return {job["job_name"]: job["dns_sd_configs"][0] for job in config["scrape_configs"]}


def test_every_grader_is_scraped_and_serves_its_metrics_there() -> None:
    assert scraped()["graders"]["names"] == [f"grader-{name}" for name in GRADERS]
    for name in GRADERS:
        command = SERVICES[f"grader-{name}"]["command"]
        assert command[command.index("--metrics-port") + 1] == str(scraped()["graders"]["port"])
        assert command[command.index("--metrics-host") + 1] == "0.0.0.0"  # noqa: S104
        dockerfile = (ROOT / f"deploy/docker/grader-{name}.Dockerfile").read_text()
        assert f"EXPOSE {scraped()['graders']['port']}" in dockerfile


@pytest.mark.parametrize(("job", "service"), [("api", "api"), ("training", "dashboard")])
def test_services_are_scraped_on_the_port_that_they_listen_on(job: str, service: str) -> None:
    assert scraped()[job]["names"] == [service]
    command = SERVICES[service]["command"]
    assert command[command.index("--port") + 1] == str(scraped()[job]["port"])


@pytest.mark.parametrize("service", ["api", "dashboard", *(f"grader-{name}" for name in GRADERS)])
def test_prometheus_shares_a_network_with_whom_it_scrapes(service: str) -> None:
    assert set(SERVICES[service]["networks"]) & set(SERVICES["prometheus"]["networks"])


# ---------------------------------------------------------------------------------------- promtool


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    return found


def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "test", "rules", "rules_test.yml"],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for one in tests
        for case in one["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == {
        rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule
    }


def test_the_configuration_is_one(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "config", "prometheus.yml"],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_query_of_the_dashboards_is_promql(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{index}", "expr": re.sub(r"\$(grader|run)", ".*", expression)}
        for index, (_, expression, _) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout + done.stderr
