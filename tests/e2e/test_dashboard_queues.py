"""The queues on the live page: the dashboard, an API with keys and a real Redis, over HTTP and in a
real browser."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from browser import NEEDS_BROWSER, errors, flaws, opened
from dashboard_server import LivePage

from gradus.errors import Misuse
from services.api.server import serve
from services.api.settings import ApiSettings
from services.broker.streams import StreamsBroker
from services.dashboard.queues import Queues, create_queues
from tests.contract.test_queue_routes import KEYS, SECRETS, bury
from tests.fake_grader import HIDDEN, INFO, SETTINGS, submission

T = TypeVar("T")
PAGE = "/#/queues?grader=ocaml"
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"


class Api:
    """An API over Redis in a thread of its own, with one live worker that claims nothing."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def call(self, act: Callable[[StreamsBroker], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(act(self.broker), self.loop).result(20)

    def _on_ready(self, url: str) -> None:
        self.url = url
        self.ready.set()

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        self.broker = StreamsBroker(self._redis_url)
        await self.broker.heartbeat("w", INFO, 600)
        settings = ApiSettings(**(SETTINGS | {"keys": KEYS}))
        await serve(
            self.broker,
            "127.0.0.1",
            0,
            settings=settings,
            stop=self.stopping,
            on_ready=self._on_ready,
        )
        await self.broker.close()


@pytest.fixture
def api(redis_server: Callable[..., Any]) -> Iterator[Api]:
    made = Api(redis_server().url)
    made.thread.start()
    assert made.ready.wait(20)
    yield made
    made.loop.call_soon_threadsafe(made.stopping.set)
    made.thread.join(20)


@pytest.fixture
def page(api: Api, tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        LivePage(tmp_path, queues=Queues(api.url, SECRETS["operator"][0])).running() as live,
        httpx.Client(base_url=live.url) as client,
    ):
        yield client


def start(api: Api, *completions: str) -> None:
    sent = {"submissions": [submission(str(n), text) for n, text in enumerate(completions)]}
    headers = {"authorization": f"Bearer {SECRETS['trainer'][0]}"}
    assert httpx.post(f"{api.url}/v1/jobs/ocaml", json=sent, headers=headers).status_code == 202


def test_the_page_passes_an_operators_requests_on_and_no_others(
    api: Api, page: httpx.Client
) -> None:
    start(api, "one", "two")
    assert page.get("/api/runs").json()["has_queues"]
    assert page.get("/api/queues").json()["queues"]["ocaml"]["queued"] == 2
    assert page.put("/api/queues/ocaml", json={"state": "paused"}).json() == {"state": "paused"}
    [first, _] = page.get("/api/queues/ocaml/jobs").json()["jobs"]
    assert page.post("/api/queues/ocaml/cancel", json={"jobs": [first["id"]]}).json() == {
        "cancelled": 1
    }
    for path in (
        "/../graders",
        "/ocaml/../../graders",
        "/ocaml/jobs/x",
        "x",
        "/ocaml/dead-letters/a/b/c",
        "/%2e%2e/graders",
    ):
        assert page.get(f"/api/queues{path}").status_code == 404, path
    assert page.put("/api/queues/ocaml", content=b" " * 5000).status_code == 413
    assert page.put("/api/queues/ocaml", json={"state": "shut"}).status_code == 422


def test_a_page_from_elsewhere_changes_nothing(api: Api, page: httpx.Client) -> None:
    for origin, status in (
        ("https://evil.example", 403),
        ("http://[", 403),
        ("null", 403),
        (str(page.base_url), 200),
    ):
        answer = page.put("/api/queues/ocaml", json={"state": "paused"}, headers={"origin": origin})
        assert answer.status_code == status
        assert api.call(lambda broker: broker.get_queue_state("ocaml")) == (
            "paused" if status == 200 else "open"
        )


def test_without_an_api_without_its_token_and_with_a_wrong_key_there_is_nothing(
    api: Api, tmp_path: Path
) -> None:
    with LivePage(tmp_path).running() as live:
        assert httpx.get(f"{live.url}/api/queues").status_code == 404
    right = Queues(api.url, SECRETS["operator"][0])
    with LivePage(tmp_path, token="t" * 16, queues=right).running() as live:
        assert httpx.get(f"{live.url}/api/queues").status_code == 401
        assert (
            httpx.get(
                f"{live.url}/api/queues", headers={"authorization": "Bearer " + "t" * 16}
            ).status_code
            == 200
        )
    with LivePage(tmp_path, queues=Queues(api.url, SECRETS["trainer"][0])).running() as live:
        assert "role=operator" in httpx.get(f"{live.url}/api/queues").json()["detail"]
    with LivePage(tmp_path, queues=Queues("http://127.0.0.1:9", "k")).running() as live:
        assert httpx.get(f"{live.url}/api/queues").status_code == 502


@pytest.mark.parametrize("text", [None, "", "two words", "gradus_x\ngradus_y"])
def test_an_api_needs_a_file_with_one_key(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Misuse, match="--api-key-file"):
        create_queues("http://x", file)
    with pytest.raises(Misuse, match="--api-key-file"):
        create_queues("http://x", None)


def shown(browser: Any, condition: str) -> Any:
    """The value of JavaScript, once it is true."""
    give_up_at = time.monotonic() + 60
    while not (found := browser.execute_script(f"return {condition}")):
        assert time.monotonic() < give_up_at, browser.execute_script(
            "return document.body.innerText"
        )
        time.sleep(0.05)
    return found


def click(browser: Any, text: str) -> None:
    button = f"[...document.querySelectorAll('button')].find((one) => one.textContent === {text!r})"
    shown(browser, f"{button} !== undefined")
    browser.execute_script(f"{button}.click()")


def has(text: str) -> str:
    return f"document.body.innerText.includes({text!r})"


@pytest.mark.usefixtures("page")
@NEEDS_BROWSER[0]
@NEEDS_BROWSER[1]
def test_an_operator_pauses_cancels_and_buries_on_the_page(
    api: Api, page: httpx.Client, browser: Any
) -> None:
    api.call(lambda broker: bury(broker, "killer", ""))
    api.call(lambda broker: bury(broker, "hostile", HOSTILE))
    start(api, "one")
    url = str(page.base_url)
    opened(browser, url)
    shown(browser, "!document.getElementById('to-queues').hidden")
    opened(browser, url + PAGE)
    shown(browser, "document.querySelectorAll('table').length === 3")
    assert flaws(browser, "queues", 1280) == []
    opened(browser, url + PAGE, width=375)
    shown(browser, "document.querySelectorAll('table').length === 3")
    assert flaws(browser, "queues-narrow", 375) == []
    browser.execute_script("window.confirm = () => true")
    click(browser, "Pause")
    shown(browser, has("paused"))
    assert api.call(lambda broker: broker.get_queue_state("ocaml")) == "paused"
    click(browser, "Cancel")
    shown(browser, has("No unfinished job."))
    assert api.call(lambda broker: broker.depth("ocaml")) == 0
    browser.execute_script(
        "for (const one of document.querySelectorAll('details')) one.open = true"
    )
    shown(browser, has(HIDDEN))
    shown(browser, has("onerror"))
    assert browser.execute_script("return document.querySelector('img')") is None
    click(browser, "Queue again")
    shown(browser, has("requeued 1"))
    assert api.call(lambda broker: broker.depth("ocaml")) == 1
    click(browser, "Delete all dead letters")
    shown(browser, has("No dead letter."))
    assert api.call(lambda broker: broker.dead_letters("ocaml")) == []
    assert browser.title == "Queues: Gradus"
    assert errors(browser) == []
