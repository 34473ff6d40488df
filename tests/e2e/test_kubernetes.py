"""deploy/k8s as `kubectl kustomize` renders it: what Kubernetes would accept, and what the graders'
walls are there.

No cluster is asked. Core resources are checked against Kubernetes' own schemas (kubernetes-validate
carries them), KEDA's and the Prometheus operator's against the fields in crd_schemas.yaml.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
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
K8S = ROOT / "deploy/k8s"
CRDS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "crd_schemas.yaml").read_text()
)
OLDEST, NEWEST = "1.30", "1.37"
RENDERED = ("overlays/fixed", "overlays/autoscaled", "nodes")
OVERLAYS = RENDERED[:2]
OPTIONAL = {"preference": "components/preference"}
"""Graders that a cluster has only when it is told to: they need what nobody ships."""
SHIPPED = [name for name in GRADERS if name not in OPTIONAL]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")
"""A variable of Compose with its default."""

Object = dict[str, Any]


@cache
def rendered(folder: str) -> tuple[Object, ...]:
    if shutil.which("kubectl") is None:
        pytest.skip(
            "kubectl is not installed: it renders deploy/k8s, and needs no cluster for that"
        )
    done = subprocess.run(
        ["kubectl", "kustomize", str(K8S / folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


@cache
def render_with(folder: str, *components: str) -> tuple[Object, ...]:
    """Render an overlay with these components."""
    with tempfile.TemporaryDirectory() as made:
        k8s = os.path.relpath(K8S, made)
        named = ", ".join(f"{k8s}/{component}" for component in components)
        text = f"resources: [{k8s}/{folder}]\ncomponents: [{named}]\n"
        (Path(made) / "kustomization.yaml").write_text(text)
        return rendered(made)


def with_options(folder: str) -> tuple[Object, ...]:
    """An overlay with every optional grader, and the trainer on a GPU."""
    return render_with(folder, *OPTIONAL.values(), *list_training(folder))


def list_training(folder: str) -> list[str]:
    """Return the components of training that an overlay does not have by itself."""
    in_fixed = ["components/training"] if folder == "overlays/fixed" else []
    return [*in_fixed, "components/training-gpu"]


def of_kind(objects: tuple[Object, ...], kind: str) -> dict[str, Object]:
    return {entry["metadata"]["name"]: entry for entry in objects if entry["kind"] == kind}


def pods(objects: tuple[Object, ...]) -> Iterator[tuple[str, Object]]:
    for entry in objects:
        if "template" in entry.get("spec", {}):
            yield entry["metadata"]["name"], entry["spec"]["template"]


def containers(template: Object) -> Iterator[Object]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


def matches(selector: Object, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(rule["key"]) in rule["values"] for rule in among
    )


# ---------------------------------------------------------------------- the schemas


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("folder", RENDERED)
def test_kubernetes_would_accept_what_is_rendered(folder: str, version: str) -> None:
    for entry in rendered(folder):
        if entry["kind"] not in CRDS:
            kubernetes_validate.validate(entry, version, strict=True)


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.slow), NEWEST])
def test_kubernetes_would_accept_graders_that_are_optional(version: str) -> None:
    for entry in with_options("overlays/fixed"):
        kubernetes_validate.validate(entry, version, strict=True)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_operators_would_accept_theirs(folder: str) -> None:
    for entry in rendered(folder):
        if entry["kind"] in CRDS:
            jsonschema.validate(entry["spec"], CRDS[entry["kind"]])


def test_a_misspelt_field_is_not_accepted() -> None:
    deployment = copy.deepcopy(of_kind(rendered("overlays/fixed"), "Deployment")["api"])
    deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonroot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)
    scaled = copy.deepcopy(
        of_kind(rendered("overlays/autoscaled"), "ScaledObject")["grader-ocaml"]["spec"]
    )
    scaled["triggers"][1]["metadata"]["consumerGroup"] = "workers"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(scaled, CRDS["ScaledObject"])


# ---------------------------------------------------------------------- one piece per grader


@pytest.mark.parametrize("folder", OVERLAYS)
def test_every_grader_has_a_deployment_of_its_name_and_there_is_no_other(folder: str) -> None:
    for objects, names in ((rendered(folder), SHIPPED), (with_options(folder), list(GRADERS))):
        found = {name for name in of_kind(objects, "Deployment") if name.startswith("grader-")}
        assert found == {f"grader-{name}" for name in names}
        budgets = of_kind(objects, "PodDisruptionBudget")
        assert found <= budgets.keys(), "a grader without a PodDisruptionBudget"


@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_runs_its_own_image_with_its_own_name(name: GraderName) -> None:
    deployment = of_kind(with_options("overlays/fixed"), "Deployment")[f"grader-{name}"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"gradus-grader-{name}"
    assert container["args"][:3] == ["gradus", "worker", name]
    assert (ROOT / f"deploy/docker/grader-{name}.Dockerfile").is_file()
    slots = container["args"][container["args"].index("--slots") + 1]
    assert slots == str(WAITING_SLOTS.get(name, int(container["resources"]["requests"]["cpu"])))
    in_compose = COMPOSE[f"grader-{name}"]["mem_limit"].rpartition(":-")[2].removesuffix("}")
    assert container["resources"]["limits"]["memory"].lower().removesuffix("i") == in_compose


def test_the_model_of_the_preference_grader_is_mounted_and_cannot_be_written() -> None:
    objects = with_options("overlays/fixed")
    spec = of_kind(objects, "Deployment")["grader-preference"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    [named] = container["env"]
    [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == named["value"]]
    [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert named["name"] == "GRADUS_PREFERENCE_MODEL"
    assert mount["readOnly"] is volume["persistentVolumeClaim"]["readOnly"] is True
    assert volume["persistentVolumeClaim"]["claimName"] in of_kind(objects, "PersistentVolumeClaim")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_grader_is_scaled_by_what_is_queued_and_what_runs(name: GraderName) -> None:
    scaled = of_kind(rendered("overlays/autoscaled"), "ScaledObject")
    assert scaled.keys() == {f"grader-{one}" for one in SHIPPED}
    spec = scaled[f"grader-{name}"]["spec"]
    assert spec["scaleTargetRef"]["name"] == f"grader-{name}"
    queued, running = spec["triggers"]
    assert (queued["name"], queued["metadata"]["listName"]) == ("queued", f"gradus:queue:{name}")
    assert (running["name"], running["metadata"]["stream"]) == ("running", f"gradus:jobs:{name}")
    assert spec["advanced"]["scalingModifiers"]["formula"] == "queued + running"
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]


def test_what_the_autoscaler_scales_has_no_fixed_number() -> None:
    deployments = of_kind(rendered("overlays/autoscaled"), "Deployment")
    assert not [
        name
        for name, entry in deployments.items()
        if name.startswith("grader-") and "replicas" in entry["spec"]
    ]


# --------------------------------------------------------------------------------------- the walls


@pytest.mark.parametrize("folder", OVERLAYS)
def test_every_pod_meets_the_restricted_standard_which_the_namespace_enforces(folder: str) -> None:
    [namespace] = of_kind(rendered(folder), "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, template in pods(with_options(folder)):
        around = template["spec"]["securityContext"]
        assert around["runAsNonRoot"] is True, name
        assert around["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"), name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & template["spec"].keys(), name
        assert all(
            not {"hostPath"} & volume.keys() for volume in template["spec"].get("volumes", [])
        ), name
        for container in containers(template):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert "privileged" not in context, name


@pytest.mark.parametrize("folder", OVERLAYS)
def test_nothing_can_write_to_its_image_or_has_a_key_of_the_cluster(folder: str) -> None:
    for name, template in pods(with_options(folder)):
        assert template["spec"]["automountServiceAccountToken"] is False, name
        for container in containers(template):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert "memory" in container["resources"]["limits"], name


@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_of_code_has_our_seccomp_profile_and_others_the_runtimes(name: GraderName) -> None:
    template = of_kind(with_options("overlays/fixed"), "Deployment")[f"grader-{name}"]["spec"][
        "template"
    ]
    profile = template["spec"]["securityContext"]["seccompProfile"]
    if name in WAITING_SLOTS:
        assert profile == {"type": "RuntimeDefault"}
    else:
        assert profile == {"type": "Localhost", "localhostProfile": "gradus-grader.json"}
    [config] = of_kind(rendered("nodes"), "ConfigMap").values()
    assert (
        config["data"]["gradus-grader.json"]
        == (ROOT / "deploy/docker/seccomp-grader.json").read_text()
    )


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


@pytest.mark.parametrize(
    ("component", "has_it"),
    [
        ("apparmor", lambda pod: "appArmorProfile" in pod["securityContext"]),
        ("sandboxed-runtime", lambda pod: pod.get("runtimeClassName") == "gvisor"),
        ("user-namespaces", lambda pod: pod.get("hostUsers") is False),
    ],
)
def test_a_grader_of_code_can_have_one_wall_more(
    component: str, has_it: Callable[[Object], bool]
) -> None:
    objects = render_with("overlays/fixed", f"components/{component}")
    for name in SHIPPED:
        deployment = of_kind(objects, "Deployment")[f"grader-{name}"]
        kubernetes_validate.validate(deployment, NEWEST, strict=True)
        assert has_it(deployment["spec"]["template"]["spec"]) is (name != "story")


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


@pytest.mark.parametrize("folder", OVERLAYS)
@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_reaches_redis_and_names_and_nothing_else(folder: str, name: GraderName) -> None:
    objects = with_options(folder)
    labels = of_kind(objects, "Deployment")[f"grader-{name}"]["spec"]["template"]["metadata"][
        "labels"
    ]
    allowed = [
        rule
        for policy in policies_for(objects, labels, "Egress")
        for rule in policy.get("egress", [])
    ]
    ports = sorted({port["port"] for rule in allowed for port in rule["ports"]})
    assert ports == [53, 6379]
    assert all("to" in rule for rule in allowed), "a rule without `to` is a way to everywhere"


URL = re.compile(r"\w+://([a-z0-9.-]+):(\d+)")


def find_addresses(objects: tuple[Object, ...], template: Object) -> set[tuple[str, int]]:
    """Return host and port of each address in a pod's arguments and variables, and of the URLs of
    Redis in its secrets."""
    texts: list[str] = []
    for container in containers(template):
        texts += [str(argument) for argument in container.get("args", [])]
        texts += [str(variable.get("value", "")) for variable in container.get("env", [])]
        for source in container.get("envFrom", []):
            config = of_kind(objects, "ConfigMap").get(source["configMapRef"]["name"])
            texts += config["data"].values() if config else []
    found = set()
    for text in texts:
        found |= {(host, int(port)) for host, port in URL.findall(text)}
        if text.startswith("file:/run/secrets/gradus/redis-"):
            found.add(("redis", 6379))
    return found


NONE: Object = {"matchLabels": {"no": "pod"}}


def is_peer(peers: list[Object], labels: dict[str, str], namespace: str) -> bool:
    """Is a pod with these labels, in this namespace, among the peers of a policy's rule?"""
    for peer in peers:
        if "namespaceSelector" in peer:
            if matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
                return True
        elif namespace == "gradus" and matches(peer.get("podSelector", NONE), labels):
            return True
    return False


def is_allowed(policies: list[Object], way: str, port: int, labels: Object, namespace: str) -> bool:
    for policy in policies:
        for rule in policy.get("egress" if way == "to" else "ingress", []):
            ports = [entry["port"] for entry in rule["ports"]]
            if port in ports and is_peer(rule[way], labels, namespace):
                return True
    return False


@pytest.mark.parametrize("folder", OVERLAYS)
def test_policies_let_every_pod_reach_what_it_is_told_to(folder: str) -> None:
    parts = ["components/tracing", *OPTIONAL.values(), *list_training(folder)]
    objects = render_with(folder, *parts)
    services = of_kind(objects, "Service")
    followed = set()
    for name, template in pods(objects):
        labels = template["metadata"]["labels"]
        for host, port in find_addresses(objects, template):
            service, _, namespace = host.partition(".")
            followed.add((service, port))
            target = {} if namespace else services[service]["spec"]["selector"]
            leaving = policies_for(objects, labels, "Egress")
            assert is_allowed(leaving, "to", port, target, namespace or "gradus"), (name, host)
            if not namespace:
                entering = policies_for(objects, target, "Ingress")
                assert is_allowed(entering, "from", port, labels, "gradus"), (name, host)
    assert followed == {("redis", 6379), ("api", 8000), ("collector", 4318), ("generation", 8001)}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_trainer_alone_reaches_vllm_and_only_the_download_leaves_the_cluster(
    folder: str,
) -> None:
    objects = with_options(folder)
    by_name = {name: pod["metadata"]["labels"] for name, pod in pods(objects)}
    entering = policies_for(objects, by_name["generation"], "Ingress")
    reaching = set()
    leaving = set()
    for name, labels in by_name.items():
        if is_allowed(entering, "from", 8001, labels, "gradus"):
            reaching.add(name)
        for policy in policies_for(objects, labels, "Egress"):
            for rule in policy.get("egress", []):
                if any(port["port"] == 443 for port in rule["ports"]):
                    leaving.add(name)
    assert reaching == {"trainer-gpu"}
    assert leaving == {"fetch-model"}


@pytest.mark.parametrize("address", ["169.254.20.10/32", "169.254.169.254/32"])
def test_names_are_resolved_by_a_cache_on_the_node_too(address: str) -> None:
    policy = of_kind(rendered("overlays/fixed"), "NetworkPolicy")["names"]["spec"]
    [rule] = policy["egress"]
    assert {"ipBlock": {"cidr": address}} in rule["to"]
    assert {port["port"] for port in rule["ports"]} == {53}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_a_redis_elsewhere_takes_the_place_of_the_pod(folder: str) -> None:
    objects = render_with(folder, "components/managed-redis")
    assert not of_kind(objects, "StatefulSet")
    assert "redis" not in of_kind(objects, "Service")
    policies = of_kind(objects, "NetworkPolicy")
    [rule] = policies["to-redis"]["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    for policy in policies.values():
        kubernetes_validate.validate(policy, NEWEST, strict=True)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_no_policy_names_is_refused_both_ways(folder: str) -> None:
    policy = of_kind(rendered(folder), "NetworkPolicy")["nothing-unless-said"]["spec"]
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_only_api_migration_graders_and_the_autoscaler_reach_redis(folder: str) -> None:
    template = of_kind(rendered(folder), "StatefulSet")["redis"]["spec"]["template"]
    policies = policies_for(rendered(folder), template["metadata"]["labels"], "Ingress")
    sources = [
        source
        for policy in policies
        for rule in policy.get("ingress", [])
        for source in rule["from"]
    ]
    named = {
        next(iter(source.values()))["matchLabels"].popitem()[1] for source in copy.deepcopy(sources)
    }
    keda = {"keda"} if folder == "overlays/autoscaled" else set()
    assert named == {"api", "grader", "migrate"} | keda


@pytest.mark.parametrize("name", GRADERS)
def test_a_grader_is_restarted_when_its_loops_are_dead_and_ready_when_it_is_registered(
    name: GraderName,
) -> None:
    template = dict(pods(with_options("overlays/fixed")))[f"grader-{name}"]
    [container] = template["spec"]["containers"]
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


@pytest.mark.parametrize("folder", OVERLAYS)
def test_services_and_budgets_select_pods_that_are_there(folder: str) -> None:
    labels = [template["metadata"]["labels"] for _, template in pods(rendered(folder))]
    for service in of_kind(rendered(folder), "Service").values():
        assert any(matches({"matchLabels": service["spec"]["selector"]}, one) for one in labels), (
            service
        )
    for budget in of_kind(rendered(folder), "PodDisruptionBudget").values():
        assert any(matches(budget["spec"]["selector"], one) for one in labels), budget


def test_what_is_watched_is_there_and_serves_on_the_named_port() -> None:
    objects = rendered("overlays/autoscaled")
    services = [entry for entry in objects if entry["kind"] == "Service"]
    for monitor in of_kind(objects, "ServiceMonitor").values():
        chosen = [
            one
            for one in services
            if matches(monitor["spec"]["selector"], one["metadata"].get("labels", {}))
        ]
        assert chosen, monitor["metadata"]
        named = {port["name"] for service in chosen for port in service["spec"]["ports"]}
        assert {point["port"] for point in monitor["spec"]["endpoints"]} <= named
    [graders] = of_kind(objects, "PodMonitor").values()
    for name, template in pods(objects):
        chosen = matches(graders["spec"]["selector"], template["metadata"]["labels"])
        assert chosen is name.startswith("grader-")
        if chosen:
            [container] = template["spec"]["containers"]
            assert container["ports"] == [{"name": "metrics", "containerPort": 9100}]


def test_the_operators_rules_are_the_rules() -> None:
    [rule] = of_kind(rendered("overlays/autoscaled"), "PrometheusRule").values()
    ours = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    assert rule["spec"] == ours, (
        "write deploy/prometheus/rules.yml below `spec:` of components/monitoring/rules.yaml"
    )


def test_every_dashboard_is_handed_to_grafana() -> None:
    config = next(
        one
        for name, one in of_kind(rendered("overlays/autoscaled"), "ConfigMap").items()
        if "dash" in name
    )
    files = {
        file.name: file.read_text() for file in (ROOT / "deploy/grafana/dashboards").glob("*.json")
    }
    assert config["data"] == files


@pytest.mark.parametrize("folder", OVERLAYS)
def test_what_is_mounted_of_secrets_is_what_the_script_makes(folder: str, tmp_path: Path) -> None:
    subprocess.run(["sh", ROOT / "deploy/setup/secrets.sh", tmp_path / "made"], check=True)
    made = {file.name for file in (tmp_path / "made").iterdir()}
    for name, template in pods(rendered(folder)):
        for volume in template["spec"].get("volumes", []):
            if volume.get("secret", {}).get("secretName") == "gradus":
                keys = {item["key"] for item in volume["secret"]["items"]}
                assert keys <= made, name
                if name.startswith("grader-"):  # of no other grader
                    assert keys == {f"redis-worker-{name[7:]}.url", f"{name}.secret"}
    for access in of_kind(rendered(folder), "TriggerAuthentication").values():
        assert {one["key"] for one in access["spec"]["secretTargetRef"]} <= made


@pytest.mark.parametrize(
    "service",
    [
        *("redis", "migrate", "api", *(f"grader-{name}" for name in GRADERS), "dashboard"),
        *("trainer", "trainer-gpu", "generation", "fetch-model"),
    ],
)
def test_what_runs_here_runs_with_compose_and_with_the_same_words(service: str) -> None:
    template = dict(pods(with_options("overlays/autoscaled")))[service]
    [container] = template["spec"]["containers"]
    here = [str(word) for word in container.get("command", container.get("args"))]
    there = [DEFAULT.sub(r"\1", str(word)) for word in COMPOSE[service]["command"]]
    options = [word for word in here if word.startswith("--")]
    if service == "dashboard":  # with compose its port is the host's own, others reach a cluster's
        options.remove("--token-file")
    assert here[:3] == there[:3]
    assert options == [word for word in there if word.startswith("--")]
