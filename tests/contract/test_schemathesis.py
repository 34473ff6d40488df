"""Requests made up from the OpenAPI document, good and bad, against a real server: every answer is as documented.

The grader behind it is trivial: what is tested is what the document promises, not how anything is judged. A request
that fits the document can still be refused (an id that occurs twice, a rubric that nobody offers), so acceptance is
not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

from services.api.app import create_app
from services.api.keys import new_key
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.echo import Service, submission

SECRET, KEY = new_key("schemathesis", [])
SENT = {"authorization": f"Bearer {SECRET}"}
REFUSED = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}}
"""By default 413, for too many submissions, is no refusal to schemathesis."""
DOCUMENT = schemathesis.openapi.from_dict(
    create_app(MemoryBroker(), ApiSettings()).openapi(), config=schemathesis.Config.from_dict(REFUSED)
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Service(keys=KEY.line()).running() as here:
        yield here.url


@DOCUMENT.parametrize()
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_documented(case: Case, url: str) -> None:
    case.call_and_validate(url, headers=SENT, excluded_checks=[positive_data_acceptance], timeout=30)


def test_a_job_that_is_done_is_shown_as_documented(url: str) -> None:
    started = DOCUMENT["/v1/jobs/{name}"]["POST"].Case(
        path_parameters={"name": "ocaml"},
        body={"submissions": [submission("a"), submission("b", "fault")]},
        media_type="application/json",
    )
    job_id = started.call_and_validate(url, headers=SENT).json()["id"]
    asking = DOCUMENT["/v1/jobs/{name}"]["GET"].Case(path_parameters={"name": job_id})
    while (shown := asking.call_and_validate(url, headers=SENT).json())["status"] != "done":
        pass
    assert [result["status"] for result in shown["results"]] == ["graded", "faulted"]
