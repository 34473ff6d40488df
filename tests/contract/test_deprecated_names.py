"""Old names that clients and deployments may still use for one release: each means what its new
name means."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import yaml

from gradus.errors import Misuse, SandboxFault
from services.api.app import create_app
from services.api.grade_request import parse_fair_share
from services.api.settings import RENAMED, ApiSettings
from services.broker import DEFAULT_FAIR_SHARE, FairShare, Priority
from services.broker.memory import MemoryBroker
from services.sandbox.container_hardening import OLD_VARIABLE, VARIABLE, require_container_hardening
from tests.fake_grader import INFO, submission

ROOT = Path(__file__).parents[2]
NIGHTLY = FairShare("default nightly", Priority.EVALUATION)


@pytest.mark.parametrize(
    "headers",
    [
        {"gradus-run": "nightly", "gradus-priority": "evaluation"},
        {"run": "nightly", "priority": "evaluation"},
        {"gradus-run": "nightly", "priority": "evaluation"},
        {
            "gradus-run": "nightly",
            "gradus-priority": "evaluation",
            "run": "other",
            "priority": "training",
        },
    ],
)
def test_both_spellings_of_the_scheduling_headers_count_and_the_new_one_wins(
    headers: dict[str, str],
) -> None:
    assert parse_fair_share(headers) == NIGHTLY


@pytest.mark.parametrize(
    "headers", [{"priority": "u=1, i"}, {"priority": ""}, {"run": ""}, {"run": "a b"}]
)
async def test_a_foreign_header_of_an_old_name_is_ignored(headers: dict[str, str]) -> None:
    assert parse_fair_share(headers) == DEFAULT_FAIR_SHARE
    broker = MemoryBroker()
    await broker.heartbeat("w", INFO, 60)
    app = create_app(broker, ApiSettings())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        answer = await client.post(
            "/v1/jobs/ocaml", json={"submissions": [submission("a")]}, headers=headers
        )
    await app.state.api.jobs.close()
    assert answer.status_code == 202


@pytest.mark.parametrize("headers", [{"gradus-priority": "u=1, i"}, {"gradus-run": "a b"}])
def test_a_malformed_header_of_a_new_name_is_misuse(headers: dict[str, str]) -> None:
    with pytest.raises(Misuse, match="header `Gradus-"):
        parse_fair_share(headers)


def test_the_document_lists_the_old_headers_as_deprecated() -> None:
    document = create_app(MemoryBroker(), ApiSettings()).openapi()
    listed = {
        one["name"]: one for one in document["paths"]["/v1/grade/{grader}"]["post"]["parameters"]
    }
    assert [name for name, one in listed.items() if one.get("deprecated")] == ["run", "priority"]
    assert {"Gradus-Run", "Gradus-Priority"} < listed.keys()


@pytest.mark.parametrize(("old", "field"), RENAMED.items())
def test_both_spellings_of_a_setting_of_the_api_count_and_the_new_one_wins(
    old: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(old, "7")
    assert getattr(ApiSettings(), field) == 7
    monkeypatch.setenv(f"GRADUS_API_{field.upper()}", "8")
    assert getattr(ApiSettings(), field) == 8


def test_both_spellings_of_the_required_hardening_count_and_a_deployment_goes_before_its_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (VARIABLE, OLD_VARIABLE):
        monkeypatch.setenv(name, "misspelt")
        with pytest.raises(SandboxFault, match="names misspelt"):
            require_container_hardening()
        monkeypatch.delenv(name)
    monkeypatch.setenv(VARIABLE, "misspelt")
    monkeypatch.setenv(OLD_VARIABLE, "")
    require_container_hardening()


@pytest.mark.parametrize("grader", ["ocaml", "rust"])
def test_both_spellings_of_the_self_test_of_an_image_reach_its_build(grader: str) -> None:
    arguments = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][
        f"grader-{grader}"
    ]["build"]["args"]
    assert arguments["SELF_TEST"] == "${GRADUS_IMAGE_SELF_TEST:-}"
    assert arguments["PROOF"] == "${GRADUS_PROOF:-auto}"
    build = (ROOT / f"deploy/docker/grader-{grader}.Dockerfile").read_text()
    assert f'self_test.sh {grader} "${{SELF_TEST:-${{PROOF}}}}"' in build
