"""The chart deploy/helm/gradus, rendered with its default values and with each file of ci/: what
Kubernetes would accept, which walls the graders have, and who reaches whom.

No cluster is asked. Core resources are checked against Kubernetes' own schemas (kubernetes-validate
carries them), KEDA's and the Prometheus operator's against the fields in crd_schemas.yaml.
"""

from __future__ import annotations

import copy
import ipaddress
import json
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from gradus.contract import GraderName
from services.sandbox.container_hardening import find_missing_protections
from tests.graders import GRADERS, WAITING_SLOTS

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/gradus"
CRDS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "crd_schemas.yaml").read_text()
)
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
OLDEST, NEWEST = "1.30", "1.37"
DEFAULT_VALUES = "default"
VALUE_SETS = [
    DEFAULT_VALUES,
    *sorted(file.name.removesuffix("-values.yaml") for file in CHART.glob("ci/*")),
]
SHIPPED = [name for name in GRADERS if name != "preference"]
"""Graders of a cluster by default: the other needs a model of its own."""
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
"""A variable of Compose with its default."""

Object = dict[str, Any]


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts")) / "helm"
    if not program.is_file():
        pytest.skip("helm is not installed: it renders deploy/helm, and needs no cluster for that")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def name_values(values: str) -> list[str | Path]:
    """Return the options of Helm for the values of a file in ci/."""
    if values == DEFAULT_VALUES:
        return []
    return ["--values", CHART / f"ci/{values}-values.yaml"]


@cache
def rendered(values: str = DEFAULT_VALUES) -> tuple[Object, ...]:
    chosen = ["--set", "namespace.create=true", *name_values(values)]
    done = run_helm("template", "gradus", CHART, "--namespace", "gradus", *chosen)
    assert done.returncode == 0, done.stderr
    return tuple(entry for entry in yaml.safe_load_all(done.stdout) if entry)


def of_kind(objects: tuple[Object, ...], kind: str) -> dict[str, Object]:
    return {entry["metadata"]["name"]: entry for entry in objects if entry["kind"] == kind}


def pods(objects: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    """Yield name and template of each pod but the one that belongs to nodes."""
    for entry in objects:
        if "template" in entry.get("spec", {}) and entry["metadata"]["namespace"] == "gradus":
            template = entry["spec"]["template"]
            name = entry["metadata"]["name"]
            yield "migrate" if name.startswith("migrate-") else name, template


def containers(template: Object) -> Iterator[Object]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


def matches(selector: Object, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(rule["key"]) in rule["values"] for rule in among
    )


def find_grader(name: str) -> tuple[str, Object]:
    """Return a set of values with this grader, and the template of its pods."""
    values = "gpu" if name == "preference" else DEFAULT_VALUES
    return values, dict(pods(rendered(values)))[f"grader-{name}"]


# ---------------------------------------------------------------------- the chart


@pytest.mark.parametrize("values", VALUE_SETS)
def test_helm_lints_the_chart(values: str) -> None:
    done = run_helm("lint", "--strict", CHART, *name_values(values))
    assert done.returncode == 0, done.stdout


def test_the_plain_manifests_are_those_of_the_chart(tmp_path: Path) -> None:
    run_helm("version")  # skips without Helm
    subprocess.run(["make", "-s", "manifests", f"K8S={tmp_path}"], cwd=ROOT, check=True)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (ROOT / "deploy/k8s").iterdir()}
    assert made == kept, "run `make manifests`"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("graders.ocaml.slots=two", "graders.ocaml.slots: Invalid type. Expected: integer"),
        ("graders.ocaml.slot=2", "graders.ocaml: Additional property slot is not allowed"),
        ("graders.Ocaml.slots=2", "Ocaml"),
        ("graders.mine.slots=2", "graders.mine.resources needs limits.memory"),
        ("api.pod.hostNetwork=true", "api.pod: Additional property hostNetwork is not allowed"),
        ("sandbox.pod.hostUsers=true", "sandbox.pod.hostUsers"),
        ("redis.address=redis://elsewhere:6379", "redis.address: Does not match pattern"),
        ("redis.managed=true", "redis.managed needs redis.address"),
        ("tracing.endpoint=collector", "tracing.endpoint: Does not match pattern"),
        ("gpuTraining.enabled=true", "gpuTraining needs training.enabled"),
        ("dns.peers=null", "peers is required"),
    ],
)
def test_a_wrong_value_is_named(wrong: str, message: str) -> None:
    done = run_helm("template", CHART, "--set", wrong)
    assert done.returncode != 0
    assert message in done.stderr


# ---------------------------------------------------------------------- the schemas


@cache
def validate(text: str, version: str) -> None:
    """Check an object, once for all sets of values that have it."""
    kubernetes_validate.validate(json.loads(text), version, strict=True)


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("values", VALUE_SETS)
def test_kubernetes_and_the_operators_would_accept_what_is_rendered(
    values: str, version: str
) -> None:
    for entry in rendered(values):
        if entry["kind"] in CRDS:
            jsonschema.validate(entry["spec"], CRDS[entry["kind"]])
        else:
            validate(json.dumps(entry), version)


def test_a_misspelt_field_is_not_accepted() -> None:
    objects = rendered("autoscaled")
    deployment = copy.deepcopy(of_kind(objects, "Deployment")["api"])
    deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonroot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)
    scaled = copy.deepcopy(of_kind(objects, "ScaledObject")["grader-ocaml"]["spec"])
    scaled["triggers"][1]["metadata"]["consumerGroup"] = "workers"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(scaled, CRDS["ScaledObject"])


# ---------------------------------------------------------------------- one piece per grader


def test_every_grader_has_a_deployment_of_its_name_and_there_is_no_other() -> None:
    for values, names in ((DEFAULT_VALUES, SHIPPED), ("gpu", list(GRADERS))):
        objects = rendered(values)
        found = {name for name in of_kind(objects, "Deployment") if name.startswith("grader-")}
        assert found == {f"grader-{name}" for name in names}
        budgets = of_kind(objects, "PodDisruptionBudget")
        assert found <= budgets.keys(), "a grader without a PodDisruptionBudget"


@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_runs_its_own_image_with_its_own_name(name: GraderName) -> None:
    [container] = find_grader(name)[1]["spec"]["containers"]
    assert container["image"] == f"gradus-grader-{name}"
    assert container["args"][:3] == ["gradus", "worker", name]
    assert (ROOT / f"deploy/docker/grader-{name}.Dockerfile").is_file()
    slots = container["args"][container["args"].index("--slots") + 1]
    assert slots == str(WAITING_SLOTS.get(name, int(container["resources"]["requests"]["cpu"])))
    in_compose = COMPOSE[f"grader-{name}"]["mem_limit"].rpartition(":-")[2].removesuffix("}")
    assert container["resources"]["limits"]["memory"].lower().removesuffix("i") == in_compose


def test_the_model_of_the_preference_grader_is_mounted_and_cannot_be_written() -> None:
    values, template = find_grader("preference")
    [container] = template["spec"]["containers"]
    named = container["env"][0]
    [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == named["value"]]
    [volume] = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
    assert named["name"] == "GRADUS_PREFERENCE_MODEL"
    assert mount["readOnly"] is volume["persistentVolumeClaim"]["readOnly"] is True
    claims = of_kind(rendered(values), "PersistentVolumeClaim")
    assert volume["persistentVolumeClaim"]["claimName"] in claims


@pytest.mark.parametrize("name", SHIPPED)
def test_every_grader_is_scaled_by_what_is_queued_and_what_runs(name: GraderName) -> None:
    objects = rendered("autoscaled")
    scaled = of_kind(objects, "ScaledObject")
    assert scaled.keys() == {f"grader-{one}" for one in SHIPPED}
    assert "replicas" not in of_kind(objects, "Deployment")[f"grader-{name}"]["spec"]
    spec = scaled[f"grader-{name}"]["spec"]
    assert spec["scaleTargetRef"]["name"] == f"grader-{name}"
    queued, running = spec["triggers"]
    assert (queued["name"], queued["metadata"]["listName"]) == ("queued", f"gradus:queue:{name}")
    assert (running["name"], running["metadata"]["stream"]) == ("running", f"gradus:jobs:{name}")
    assert spec["advanced"]["scalingModifiers"]["formula"] == "queued + running"
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]


def test_one_grader_on_two_pools_of_nodes_is_two_deployments_of_one_queue() -> None:
    objects = rendered("spot")
    staying, spot = (
        of_kind(objects, "Deployment")[name]["spec"] for name in ("grader-rust", "grader-rust-spot")
    )
    args = [spec["template"]["spec"]["containers"][0]["args"] for spec in (staying, spot)]
    assert args[0] == args[1]
    assert staying["replicas"] == 2
    scaled = of_kind(objects, "ScaledObject")
    assert "grader-rust" not in scaled
    assert scaled["grader-rust-spot"]["spec"]["triggers"][0]["metadata"]["listName"] == (
        "gradus:queue:rust"
    )
    assert not matches(staying["selector"], spot["template"]["metadata"]["labels"])
    pod = spot["template"]["spec"]
    assert pod["nodeSelector"] == {"example.com/capacity": "spot"}
    assert pod["terminationGracePeriodSeconds"] == 15
    assert {rule["topologyKey"] for rule in pod["topologySpreadConstraints"]} == set(
        VALUES["spread"]
    )


# --------------------------------------------------------------------------------------- the walls


@pytest.mark.parametrize("values", VALUE_SETS)
def test_every_pod_meets_the_restricted_standard_which_the_namespace_enforces(values: str) -> None:
    objects = rendered(values)
    namespace = of_kind(objects, "Namespace")["gradus"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, template in pods(objects):
        around = template["spec"]["securityContext"]
        assert around["runAsNonRoot"] is True, name
        assert around["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"), name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & template["spec"].keys(), name
        assert template["spec"]["automountServiceAccountToken"] is False, name
        for volume in template["spec"].get("volumes", []):
            assert "hostPath" not in volume, name
        for container in containers(template):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in context, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("values", VALUE_SETS)
def test_one_pod_alone_touches_nodes_and_it_has_no_capability(values: str) -> None:
    objects = rendered(values)
    elsewhere = [
        entry
        for entry in objects
        if entry["kind"] != "Namespace" and entry["metadata"]["namespace"] != "gradus"
    ]
    if values == "walls":  # the Security Profiles Operator has the profile
        assert elsewhere == []
        return
    config, daemon = elsewhere
    assert (daemon["kind"], daemon["metadata"]["name"]) == ("DaemonSet", "profiles")
    profile = json.loads((ROOT / "deploy/docker/seccomp-grader.json").read_text())
    assert json.loads(config["data"]["gradus-grader.json"]) == profile
    for container in containers(daemon["spec"]["template"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_of_code_has_our_seccomp_profile_and_others_the_runtimes(name: GraderName) -> None:
    profile = find_grader(name)[1]["spec"]["securityContext"]["seccompProfile"]
    if name in WAITING_SLOTS:
        assert profile == {"type": "RuntimeDefault"}
    else:
        assert profile == {"type": "Localhost", "localhostProfile": "gradus-grader.json"}


@pytest.mark.parametrize("name", list(GRADERS))
def test_workers_ask_for_every_wall_that_a_pod_can_see(name: GraderName) -> None:
    dockerfile = (ROOT / f"deploy/docker/grader-{name}.Dockerfile").read_text()
    [asked] = [
        line.partition("GRADUS_REQUIRE_HARDENING=")[2]
        for line in dockerfile.splitlines()
        if "GRADUS_REQUIRE_HARDENING=" in line
    ]
    named = set(asked.split(","))
    everything = set(
        str(COMPOSE[f"grader-{name}"]["environment"]["GRADUS_REQUIRE_HARDENING"]).split(",")
    )
    # a pod's limit of processes is its parent's group, and every pod has a route: policies are what
    # keeps it in
    assert named == everything - {"processes", "network"}
    find_missing_protections(asked)  # no name is misspelt


@pytest.mark.parametrize("name", SHIPPED)
def test_a_grader_of_code_can_have_three_walls_more(name: GraderName) -> None:
    pod = dict(pods(rendered("walls")))[f"grader-{name}"]["spec"]
    profile = pod["securityContext"].get("appArmorProfile", {}).get("localhostProfile")
    walls = (profile, pod.get("runtimeClassName"), pod.get("hostUsers"))
    named = (CHART / "files/apparmor-gradus-grader").read_text()
    if name == "story":
        assert walls == (None, None, None)
    else:
        assert walls == ("gradus-grader", "gvisor", False)
        assert f"profile {profile} " in named


# ---------------------------------------------------------------------------------------- policies


def policies_for(
    objects: tuple[Object, ...], labels: dict[str, str], direction: str
) -> list[Object]:
    found = of_kind(objects, "NetworkPolicy").values()
    return [
        policy["spec"]
        for policy in found
        if direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], labels)
    ]


def list_rules(objects: tuple[Object, ...], labels: dict[str, str], way: str) -> list[Object]:
    """Return the rules of all policies that select a pod with these labels, one way ("from" or
    "to")."""
    direction = "Egress" if way == "to" else "Ingress"
    rules = []
    for policy in policies_for(objects, labels, direction):
        rules += policy.get(direction.lower(), [])
    return rules


@pytest.mark.parametrize("values", VALUE_SETS)
def test_a_grader_reaches_redis_names_and_the_collector_and_nothing_else(values: str) -> None:
    objects = rendered(values)
    expected = {"default": [53, 6379], "managed": [53, 4318, 6380], "gpu": [53, 4318, 6379]}
    for name, template in pods(objects):
        if not name.startswith("grader-"):
            continue
        rules = list_rules(objects, template["metadata"]["labels"], "to")
        ports = sorted({port["port"] for rule in rules for port in rule["ports"]})
        assert ports == expected.get(values, [53, 6379])
        assert all(rule.get("to") for rule in rules), "a rule without `to` is a way to everywhere"


@pytest.mark.parametrize("values", VALUE_SETS)
def test_no_rule_of_a_policy_is_open_to_everything(values: str) -> None:
    policies = of_kind(rendered(values), "NetworkPolicy")
    closed = policies.pop("nothing-unless-said")["spec"]
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, policy in policies.items():
        [way] = policy["spec"]["policyTypes"]
        [rule] = policy["spec"][way.lower()]
        assert rule["from" if way == "Ingress" else "to"], name
        assert rule["ports"], name


URL = re.compile(r"\w+://([a-z0-9.-]+):(\d+)")


def find_addresses(values: str, template: Object) -> set[tuple[str, int]]:
    """Return host and port of each address in a pod's arguments and variables, and of the URLs of
    Redis in its secrets."""
    texts: list[str] = []
    for container in containers(template):
        texts += [str(argument) for argument in container.get("args", [])]
        texts += [str(variable.get("value", "")) for variable in container.get("env", [])]
    found = set()
    for text in texts:
        found |= {(host, int(port)) for host, port in URL.findall(text)}
        if text.startswith("file:/run/secrets/gradus/redis-"):
            found.add(find_redis(values))
    return found


def find_redis(values: str) -> tuple[str, int]:
    """Return host and port of Redis, which the URLs in the secret have."""
    address = VALUES["redis"]["address"]
    if values != DEFAULT_VALUES:
        own = yaml.safe_load((CHART / f"ci/{values}-values.yaml").read_text())
        address = own.get("redis", {}).get("address", address)
    host, _, port = address.partition(":")
    return host, int(port)


def is_peer(peer: Object, labels: dict[str, str], where: str) -> bool:
    """Is a pod with these labels in the namespace `where`, or the address `where`, a peer of a
    policy's rule?"""
    if "ipBlock" in peer:
        block = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        return where[0].isdigit() and ipaddress.ip_address(where) in block
    if "namespaceSelector" in peer:
        return matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": where})
    return where == "gradus" and matches(peer["podSelector"], labels)


def is_allowed(rules: list[Object], way: str, port: int, labels: Object, where: str) -> bool:
    for rule in rules:
        ports = [entry["port"] for entry in rule["ports"]]
        if port in ports and any(is_peer(peer, labels, where) for peer in rule[way]):
            return True
    return False


FOLLOWED = {
    "autoscaled": {("api", 8000), ("redis", 6379)},
    "gpu": {
        ("api", 8000),
        ("collector.observability", 4318),
        ("generation", 8001),
        ("redis", 6379),
    },
    "managed": {("10.20.0.3", 6380), ("10.30.0.7", 4318)},
}


@pytest.mark.parametrize("values", VALUE_SETS)
def test_policies_let_every_pod_reach_what_it_is_told_to(values: str) -> None:
    objects = rendered(values)
    services = of_kind(objects, "Service")
    followed = set()
    for name, template in pods(objects):
        labels = template["metadata"]["labels"]
        leaving = list_rules(objects, labels, "to")
        for host, port in find_addresses(values, template):
            followed.add((host, port))
            if host in services:
                target = services[host]["spec"]["selector"]
                assert is_allowed(leaving, "to", port, target, "gradus"), (name, host)
                entering = list_rules(objects, target, "from")
                assert is_allowed(entering, "from", port, labels, "gradus"), (name, host)
            else:
                where = host if host[0].isdigit() else host.rpartition(".")[2]
                assert is_allowed(leaving, "to", port, {}, where), (name, host)
    assert followed == FOLLOWED.get(values, {("redis", 6379)})


@pytest.mark.parametrize("values", ["autoscaled", "managed", "spot"])
def test_the_autoscaler_reaches_the_redis_that_it_is_told_to(values: str) -> None:
    objects = rendered(values)
    addresses = set()
    for scaled in of_kind(objects, "ScaledObject").values():
        for trigger in scaled["spec"]["triggers"]:
            addresses.add(trigger["metadata"]["address"])
            assert trigger["metadata"].get("enableTLS") == ("true" if values == "managed" else None)
    host, port = find_redis(values)
    if values == "managed":  # outside of the namespace: its policies are not ours
        assert addresses == {f"{host}:{port}"}
    else:
        assert addresses == {f"{host}.gradus.svc:{port}"}
        selector = of_kind(objects, "Service")[host]["spec"]["selector"]
        assert is_allowed(list_rules(objects, selector, "from"), "from", port, {}, "keda")


def test_the_trainer_alone_reaches_vllm_and_only_the_download_leaves_the_cluster() -> None:
    objects = rendered("gpu")
    by_name = {name: pod["metadata"]["labels"] for name, pod in pods(objects)}
    entering = list_rules(objects, by_name["generation"], "from")
    reaching = set()
    leaving = set()
    for name, labels in by_name.items():
        if is_allowed(entering, "from", 8001, labels, "gradus"):
            reaching.add(name)
        for rule in list_rules(objects, labels, "to"):
            if any(port["port"] == 443 for port in rule["ports"]):
                leaving.add(name)
    assert reaching == {"trainer-gpu"}
    assert leaving == {"fetch-model"}


@pytest.mark.parametrize("address", ["169.254.20.10/32", "169.254.169.254/32"])
def test_names_are_resolved_by_a_cache_on_the_node_too(address: str) -> None:
    policy = of_kind(rendered(), "NetworkPolicy")["names"]["spec"]
    [rule] = policy["egress"]
    assert {"ipBlock": {"cidr": address}} in rule["to"]
    assert {(port["protocol"], port["port"]) for port in rule["ports"]} == {
        ("UDP", 53),
        ("TCP", 53),
    }


def test_a_redis_elsewhere_takes_the_place_of_the_pod_and_has_its_authority_mounted() -> None:
    objects = rendered("managed")
    assert not of_kind(objects, "StatefulSet")
    assert "redis" not in of_kind(objects, "Service")
    for name, template in pods(objects):
        [volume] = [one for one in template["spec"]["volumes"] if one["name"] == "redis-ca"]
        assert volume["secret"]["secretName"] == "gradus-redis-ca", name
        [container] = template["spec"]["containers"]
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        assert mounted["redis-ca"] == "/run/secrets/redis-ca", name


@pytest.mark.parametrize("values", [DEFAULT_VALUES, "autoscaled"])
def test_only_api_migration_graders_and_the_autoscaler_reach_redis(values: str) -> None:
    objects = rendered(values)
    redis = of_kind(objects, "Service")["redis"]["spec"]["selector"]
    entering = list_rules(objects, redis, "from")
    reaching = set()
    for _, template in pods(objects):
        labels = template["metadata"]["labels"]
        if is_allowed(entering, "from", 6379, labels, "gradus"):
            reaching.add(labels["app.kubernetes.io/name"])
    assert reaching == {"api", "grader", "migrate"}
    assert is_allowed(entering, "from", 6379, {}, "keda") is (values == "autoscaled")


@pytest.mark.parametrize("name", GRADERS)
def test_a_grader_is_restarted_when_its_loops_are_dead_and_ready_when_it_is_registered(
    name: GraderName,
) -> None:
    [container] = find_grader(name)[1]["spec"]["containers"]
    paths = {
        probe: container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }


# ---------------------------------------------------------------------- what belongs together


@pytest.mark.parametrize("values", VALUE_SETS)
def test_services_and_budgets_select_pods_that_are_there(values: str) -> None:
    objects = rendered(values)
    labels = [template["metadata"]["labels"] for _, template in pods(objects)]
    for service in of_kind(objects, "Service").values():
        selector = {"matchLabels": service["spec"]["selector"]}
        assert any(matches(selector, one) for one in labels), service
    for budget in of_kind(objects, "PodDisruptionBudget").values():
        assert any(matches(budget["spec"]["selector"], one) for one in labels), budget


def test_what_is_watched_is_there_and_serves_on_the_named_port_to_prometheus() -> None:
    objects = rendered("autoscaled")
    services = of_kind(objects, "Service").values()
    monitors = of_kind(objects, "ServiceMonitor")
    assert monitors.keys() == {"api", "dashboard"}
    for monitor in monitors.values():
        [service] = [
            one
            for one in services
            if matches(monitor["spec"]["selector"], one["metadata"]["labels"])
        ]
        [port] = service["spec"]["ports"]
        [point] = monitor["spec"]["endpoints"]
        assert point["port"] == port["name"]
        entering = list_rules(objects, service["spec"]["selector"], "from")
        assert is_allowed(entering, "from", port["port"], {}, "monitoring")
    [graders] = of_kind(objects, "PodMonitor").values()
    for name, template in pods(objects):
        labels = template["metadata"]["labels"]
        chosen = matches(graders["spec"]["selector"], labels)
        assert chosen is name.startswith("grader-")
        if chosen:
            [container] = template["spec"]["containers"]
            assert container["ports"] == [{"name": "metrics", "containerPort": 9100}]
            entering = list_rules(objects, labels, "from")
            assert is_allowed(entering, "from", 9100, {}, "monitoring")


def test_the_operators_rules_and_dashboards_are_those_of_compose() -> None:
    objects = rendered("autoscaled")
    [rule] = of_kind(objects, "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    config = of_kind(objects, "ConfigMap")["gradus-dashboards"]
    dashboards = {name: json.loads(text) for name, text in config["data"].items()}
    files = (ROOT / "deploy/grafana/dashboards").glob("*.json")
    assert dashboards == {file.name: json.loads(file.read_text()) for file in files}


@pytest.mark.parametrize("values", VALUE_SETS)
def test_what_is_mounted_of_secrets_is_what_the_script_makes(values: str, tmp_path: Path) -> None:
    subprocess.run(["sh", ROOT / "deploy/setup/secrets.sh", tmp_path / "made"], check=True)
    made = {file.name for file in (tmp_path / "made").iterdir()}
    for name, template in pods(rendered(values)):
        grader = template["metadata"]["labels"].get("gradus.dev/grader")
        for volume in template["spec"].get("volumes", []):
            if volume.get("secret", {}).get("secretName") == "gradus":
                keys = {item["key"] for item in volume["secret"]["items"]}
                assert keys <= made, name
                if grader:  # of no other grader
                    assert keys == {f"redis-worker-{grader}.url", f"grader-{grader}.secret"}
    for access in of_kind(rendered(values), "TriggerAuthentication").values():
        named = access["spec"]["secretTargetRef"]
        assert {one["key"] for one in named if one["name"] == "gradus"} <= made


@pytest.mark.parametrize(
    "service",
    [
        *("redis", "migrate", "api", *(f"grader-{name}" for name in GRADERS), "dashboard"),
        *("trainer", "trainer-gpu", "generation", "fetch-model"),
    ],
)
def test_what_runs_here_runs_with_compose_and_with_the_same_words(service: str) -> None:
    template = dict(pods(rendered("gpu")))[service]
    [container] = template["spec"]["containers"]
    here = [str(word) for word in container.get("command", container.get("args"))]
    there = [DEFAULT.sub(r"\1", str(word)) for word in COMPOSE[service]["command"]]
    options = [word for word in here if word.startswith("--")]
    if service == "dashboard":  # with compose its port is the host's own, others reach a cluster's
        options.remove("--token-file")
    assert here[:3] == there[:3]
    assert options == [word for word in there if word.startswith("--")]
