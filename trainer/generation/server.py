"""One vLLM server over HTTP: completions, log-probabilities, new weights. Knows neither TRL nor torch.

Nothing here waits without end. What another try may mend is a `ServerTrouble`; what none will mend is a
`GenerationStopped`, which ends the run. Both name the server and what was asked of it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from gradus.errors import GradusError
from trainer.config import GenerationConfig

POLL_S = 1.0
CONNECT_S = 10.0
CONTROL_S = 60.0
"""For requests that only ask how the server is."""
MAX_GROUPS_IN_FLIGHT = 256


class ServerTrouble(Exception):
    """The server is away, broke off, or answered nonsense: worth another try once it is there again."""


class GenerationStopped(GradusError):
    """Completions cannot be had; the message names the server and says what to do."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion as the server made it."""

    ids_T: list[int]
    logprobs_T: list[float]
    """Of each token, after temperature and filters."""


OnGroup = Callable[[int, list[Sampled]], None]


class VllmServer:
    def __init__(self, config: GenerationConfig) -> None:
        self.url = config.url.rstrip("/")
        self._request_s = config.request_timeout_s
        key = os.environ.get(config.api_key_env)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=self._headers, timeout=httpx.Timeout(CONTROL_S))

    # ------------------------------------------------------------------------------------------------ how it is

    def await_ready(self, within_s: float) -> None:
        """Returns once it is healthy. Raises GenerationStopped after `within_s` seconds."""
        give_up_at = time.monotonic() + within_s
        while (trouble := self._trouble()) is not None:
            if time.monotonic() >= give_up_at:
                raise GenerationStopped(
                    f"no vLLM server at {self.url} after {within_s:g} s: {trouble}\n"
                    "Start one with `gradus vllm MODEL`, or set generation.url to where it is."
                )
            time.sleep(POLL_S)

    def _trouble(self) -> str | None:
        try:
            self._ask("GET", "/health", timeout_s=CONNECT_S)
        except (ServerTrouble, GenerationStopped) as trouble:
            return str(trouble)
        return None

    def version(self) -> str:
        return str(_field(self._ask("GET", "/version"), "version", str))

    def model(self) -> str:
        """The name of what it serves."""
        models = _field(self._ask("GET", "/v1/models"), "data", list)
        if not models:
            raise ServerTrouble(f"{self.url} serves no model")
        return str(_field(models[0], "id", str))

    def settings(self) -> Mapping[str, Any]:
        """vLLM's own configuration. Raises GenerationStopped when its development endpoints are off."""
        try:
            said = self._ask("GET", "/server_info", params={"config_format": "json"})
        except GenerationStopped as stopped:
            raise GenerationStopped(
                f"{stopped}\nThe server at {self.url} was started without VLLM_SERVER_DEV_MODE=1, so its weights "
                "cannot be replaced. Start it with `gradus vllm MODEL`, which sets what is needed."
            ) from None
        found: Mapping[str, Any] = _field(said, "vllm_config", dict)
        return found

    def weight_version(self) -> str | None:
        """What the last update was called; None before the first one."""
        said = self._ask("GET", "/weight_info")
        version = said.get("weight_version") if isinstance(said, dict) else None
        return str(version) if version not in (None, "", "default") else None

    def adapters(self) -> set[str]:
        """The names of everything that it serves, adapters among them."""
        models = _field(self._ask("GET", "/v1/models"), "data", list)
        return {str(_field(model, "id", str)) for model in models}

    # ------------------------------------------------------------------------------------------------- weights

    def begin_updates(self) -> None:
        self._ask("POST", "/init_weight_transfer_engine", {"init_info": {}})

    def update(self, info: Mapping[str, str], version: str, within_s: float) -> None:
        """Replace all weights by those that `info` says where to find."""
        give_up_at = time.monotonic() + within_s

        def step(path: str, body: Any = None, params: Mapping[str, str] | None = None) -> None:
            self._ask("POST", path, body, params=params, timeout_s=_left(give_up_at, self.url, within_s))

        step("/pause", params={"mode": "keep"})
        try:
            step("/start_weight_update", {})
            step("/update_weights", {"update_info": dict(info)})
            step("/finish_weight_update", {"weight_version": version})
            step("/reset_prefix_cache")
        finally:
            self._ask("POST", "/resume", timeout_s=CONTROL_S)

    def load_adapter(self, name: str, path: str, within_s: float) -> None:
        self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, timeout_s=within_s)

    def unload_adapter(self, name: str) -> None:
        self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    # --------------------------------------------------------------------------------------------- completions

    def complete(
        self, model: str, prompts: Mapping[int, Sequence[int]], n: int, how: Mapping[str, Any], done: OnGroup
    ) -> None:
        """`n` completions for each prompt; `done` gets the prompt's key and its group as soon as that is there.

        Raises ServerTrouble after everything that could be had was handed over.
        """
        asyncio.run(self._complete(model, prompts, n, how, done))

    async def _complete(
        self, model: str, prompts: Mapping[int, Sequence[int]], n: int, how: Mapping[str, Any], done: OnGroup
    ) -> None:
        limits = httpx.Limits(max_connections=MAX_GROUPS_IN_FLIGHT, max_keepalive_connections=MAX_GROUPS_IN_FLIGHT)
        timeout = httpx.Timeout(self._request_s, connect=CONNECT_S, pool=None)
        fixed = {"model": model, "n": n, "logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}
        async with httpx.AsyncClient(base_url=self.url, headers=self._headers, limits=limits, timeout=timeout) as http:

            async def one(key: int, prompt: Sequence[int]) -> None:
                body = {**fixed, **how, "prompt": [list(prompt)]}
                done(key, _group(self._read(await _posted(http, self.url, body)), n, self.url))

            asked = [one(key, prompt) for key, prompt in prompts.items()]
            ended = await asyncio.gather(*asked, return_exceptions=True)
        for error in sorted((e for e in ended if isinstance(e, BaseException)), key=_severity):
            raise error

    def logprobs(self, model: str, ids_T: Sequence[int]) -> list[float]:
        """Of every token but the first, given those before it; without temperature."""
        body = {"model": model, "prompt": [list(ids_T)], "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        said = self._ask("POST", "/v1/completions", body, timeout_s=self._request_s)
        rows = _field(_field(said, "choices", list)[0], "prompt_logprobs", list)
        return [float(row[str(token)]["logprob"]) for token, row in zip(ids_T[1:], rows[1:], strict=True)]

    # ---------------------------------------------------------------------------------------------------- HTTP

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = CONTROL_S,
    ) -> Any:
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        try:
            response = self._http.request(method, path, json=body, params=params, timeout=timeout)
        except httpx.HTTPError as error:
            raise ServerTrouble(f"{self.url}{path}: {_said(error)}") from None
        return self._read(response)

    def _read(self, response: httpx.Response) -> Any:
        path, text = response.url.path, response.text
        if response.status_code == 200:
            try:
                return response.json() if text.strip() else {}
            except json.JSONDecodeError:
                raise ServerTrouble(f"{self.url}{path}: answered with no JSON: {text[:200]!r}") from None
        said = f"{self.url}{path}: status {response.status_code}: {text[:500]}"
        if response.status_code in (404, 408, 425, 429) and path.startswith("/v1/") or response.status_code >= 500:
            raise ServerTrouble(said)  # 404: a server that was started again knows no adapter any more
        raise GenerationStopped(said)


async def _posted(http: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> httpx.Response:
    try:
        return await http.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        raise ServerTrouble(f"{url}/v1/completions: {_said(error)}") from None


def _said(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _severity(error: BaseException) -> int:
    """What no other try will mend comes first."""
    return 1 if isinstance(error, ServerTrouble) else 0


def _left(give_up_at: float, url: str, within_s: float) -> float:
    left_s = give_up_at - time.monotonic()
    if left_s <= 0:
        raise ServerTrouble(f"{url} did not take new weights within {within_s:g} s (generation.sync_deadline_s)")
    return left_s


def _field(tree: Any, name: str, kind: type) -> Any:
    value = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(value, kind):
        raise ServerTrouble(f"an answer of the vLLM server has no {name}: {str(tree)[:200]}")
    return value


def _group(said: Any, n: int, url: str) -> list[Sampled]:
    choices = _field(said, "choices", list)
    if len(choices) != n:
        raise ServerTrouble(f"{url}/v1/completions: {len(choices)} completions in place of {n}")
    return [_sampled(choice, url) for choice in choices]


def _sampled(choice: Any, url: str) -> Sampled:
    ids = _field(choice, "token_ids", list)
    logprobs = _field(_field(choice, "logprobs", dict), "token_logprobs", list)
    sound = len(ids) == len(logprobs) and all(isinstance(one, int) and one >= 0 for one in ids)
    if not sound or not all(isinstance(one, int | float) and math.isfinite(one) for one in logprobs):
        raise ServerTrouble(f"{url}/v1/completions: tokens and their log-probabilities do not fit together")
    return Sampled(ids, [float(one) for one in logprobs])
