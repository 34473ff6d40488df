"""Requests made up from the OpenAPI document, good and bad, against a real server: every answer is
as documented.

The grader behind it is trivial: what is tested is what the document promises, not how anything is
judged. A request that fits the document can still be refused (an id that occurs twice, a rubric
that no grader offers), so acceptance is not checked. Schemathesis is imported and reads the
document when the first test runs: at collection that would cost every test process two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings

from services.api.api_keys import create_key
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.fake_grader import Service, submission

SECRET, KEY = create_key("schemathesis", [])
BOTH = ("positive", "negative")
GOOD = ("positive",)
MODES = {
    "POST /v1/grade/{grader}": BOTH,
    "POST /v1/grade/{grader}/stream": BOTH,
    "POST /v1/jobs/{name}": BOTH,
    "GET /v1/jobs/{name}": GOOD,
    "DELETE /v1/jobs/{name}": GOOD,
    "GET /v1/graders": GOOD,
    "GET /v1/graders/{grader}": GOOD,
    "GET /healthz": GOOD,
    "GET /readyz": GOOD,
    "GET /metrics": GOOD,
}
"""Kinds of requests that each operation can be sent. Without a body no request breaks the
document."""
SAME_BODY = ("POST /v1/grade/{grader}/stream", "POST /v1/jobs/{name}")
"""Operations whose body is that of another one."""
DETERMINISTIC: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def as_parameter(label: str, *more: str) -> Any:
    """Return the values for a test; operations of `SAME_BODY` are left to the slow tests."""
    return pytest.param(label, *more, marks=[pytest.mark.slow] * (label in SAME_BODY))


@pytest.fixture(scope="module")
def document() -> Any:
    """The OpenAPI document as Schemathesis' schema."""
    import schemathesis

    # a request with too many submissions is a 413, which Schemathesis does not expect of a value
    # that breaks a schema
    refusals = {"negative_data_rejection": {"expected-statuses": ["4xx"]}}
    config = schemathesis.Config.from_dict({"checks": refusals})
    return schemathesis.openapi.from_dict(
        create_app(MemoryBroker(), ApiSettings()).openapi(), config=config
    )


@pytest.fixture(scope="module")
def call() -> Iterator[Callable[[Any], Any]]:
    """Sends a case to a running service, checks the answer against the document, and returns the
    answer."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    with Service(keys=KEY.line()).running() as here, requests.Session() as session:
        session.trust_env = False  # it would look for a proxy at each request

        def checked(case: Any) -> Any:
            return case.call_and_validate(
                here.url,
                session,
                {"authorization": f"Bearer {SECRET}"},
                excluded_checks=[positive_data_acceptance],
                timeout=30,
            )

        yield checked


def test_every_operation_is_tested(document: Any) -> None:
    assert {operation.ok().label for operation in document.get_all_operations()} == MODES.keys()


@pytest.mark.parametrize(
    ("label", "mode"),
    [as_parameter(label, mode) for label, modes in MODES.items() for mode in modes],
)
def test_every_answer_is_as_documented(
    document: Any, call: Callable[[Any], Any], label: str, mode: str
) -> None:
    from schemathesis import GenerationMode

    method, path = label.split()

    @settings(max_examples=15, phases=[Phase.generate], **DETERMINISTIC)
    @given(document[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    def each(case: Any) -> None:
        call(case)

    each()


@pytest.mark.parametrize("label", [as_parameter(label) for label in MODES])
def test_answers_at_every_boundary_are_as_documented(
    document: Any, call: Callable[[Any], Any], label: str
) -> None:
    """The cases of Schemathesis' coverage phase: each field missing, of another type, at its limits
    and past them."""
    from schemathesis import GenerationMode

    method, path = label.split()
    operation = document[path][method]
    generation = document.config.generation_for(operation=operation, phase="coverage")
    modes = [GenerationMode(mode) for mode in BOTH]
    cases = [
        *document.iter_coverage_cases(
            operation, generation_modes=modes, generation_config=generation
        )
    ]
    assert len(cases) > (300 if method == "POST" else 1)
    for case in cases:
        call(case)


def test_a_job_that_is_done_is_shown_as_documented(
    document: Any, call: Callable[[Any], Any]
) -> None:
    started = document["/v1/jobs/{name}"]["POST"].Case(
        path_parameters={"name": "ocaml"},
        body={"submissions": [submission("a"), submission("b", "fault")]},
        media_type="application/json",
    )
    asking = document["/v1/jobs/{name}"]["GET"].Case(
        path_parameters={"name": call(started).json()["id"]}
    )
    while (shown := call(asking).json())["status"] != "done":
        pass
    assert [result["status"] for result in shown["results"]] == ["graded", "faulted"]
    cancelling = document["/v1/jobs/{name}"]["DELETE"].Case(path_parameters=asking.path_parameters)
    assert call(cancelling).json() == shown
