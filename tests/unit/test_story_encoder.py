"""The batching encoder's promises, held against a model that is arithmetic: what comes out says
what went in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradus.errors import InternalFault
from services.graders.base.batching import Ids, Queued, make_passes
from services.graders.story.encoder import MAX_PASS_TOKENS, Encoder, Floats
from services.sandbox.cancellation import CancelToken, enter_attempt

SOON_S = 60.0
TEXTS = st.lists(st.text(max_size=30), min_size=1, max_size=40)


class Arithmetic:
    """A token per character, and sums of tokens for vectors; keeps every pass, can be held, breaks
    on a token that it is told, and cannot tell one text."""

    def __init__(self) -> None:
        self.passes: list[Sequence[Ids]] = []
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Semaphore(0)
        self.breaks_on: int | None = None
        self.gives: float | None = None

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        if "untellable" in texts:
            raise InternalFault("this text has no tokens")
        return [tokens(text) for text in texts]

    def encode(self, ids: Sequence[Ids]) -> Floats:
        self.entered.release()
        assert self.go.wait(SOON_S)
        self.passes.append(ids)
        if any(self.breaks_on in row for row in ids):
            raise ValueError("no such token")
        vectors = np.stack([expected(row) for row in ids])
        return vectors if self.gives is None else np.full_like(vectors, self.gives)

    @property
    def texts(self) -> int:
        return sum(len(one) for one in self.passes)


def tokens(text: str) -> list[int]:
    return [1, *(ord(letter) + 2 for letter in text)]


def expected(ids: Ids) -> Floats:
    return np.array([len(ids), sum(ids) % 9973, ids[-1] % 9973], np.float32)


@pytest.fixture
def model() -> Arithmetic:
    return Arithmetic()


@pytest.fixture
def encoder(model: Arithmetic) -> Iterator[Encoder]:
    made = Encoder(model, max_pass_tokens=64)
    yield made
    model.go.set()
    made.close()


def wants(texts: Sequence[str]) -> Floats:
    return np.stack([expected(tokens(text)) for text in texts])


def in_threads(number: int, act: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(act, index) for index in range(number)]
        return [future.result(SOON_S) for future in futures]


def held(model: Arithmetic, encoder: Encoder, pool: ThreadPoolExecutor) -> None:
    """Has the model in the middle of a pass, so that all that is asked next is queued."""
    model.go.clear()
    pool.submit(encoder.vectors, ["the pass under way"])
    assert model.entered.acquire(timeout=SOON_S)


def until_queued(encoder: Encoder, number: int) -> None:
    give_up_at = time.monotonic() + SOON_S
    while len(encoder._model._queue) != number:
        assert time.monotonic() < give_up_at, (
            f"{len(encoder._model._queue)} texts are queued and not {number}"
        )
        time.sleep(0.001)


# ---------------------------------------------------------------------- what comes out


@given(TEXTS)
@settings(max_examples=25, deadline=None)
def test_every_text_gets_its_own_vectors_in_the_order_asked(texts: list[str]) -> None:
    encoder = Encoder(Arithmetic(), max_pass_tokens=64)
    try:
        found = encoder.embed(texts)
        assert np.array_equal(found.vectors, wants(texts))
        assert np.array_equal(encoder.vectors(texts[::-1]), wants(texts[::-1]))
    finally:
        encoder.close()


def test_a_text_is_asked_once_however_often_it_occurs(encoder: Encoder, model: Arithmetic) -> None:
    encoder.vectors(["a", "b", "a", "a", "b"])
    encoder.vectors(["b", "a", "c"])
    assert model.texts == 3


def test_texts_that_differ_in_anything_are_different_texts(
    encoder: Encoder, model: Arithmetic
) -> None:
    texts = ["a", "A", " a", "a ", "à", ""]
    assert np.array_equal(encoder.vectors(texts), wants(texts))
    assert model.texts == len(texts)


def test_what_is_given_out_may_be_changed_and_what_is_kept_stays(encoder: Encoder) -> None:
    encoder.vectors(["a"])[:] = 0
    assert np.array_equal(encoder.vectors(["a"]), wants(["a"]))


def test_the_model_s_time_is_told_to_the_one_who_asked_first(encoder: Encoder) -> None:
    assert encoder.embed(["a", "b"]).cpu_s > 0
    assert encoder.embed(["b", "a", "a"]).cpu_s == 0


# ---------------------------------------------------------------------- many at a time


def test_many_threads_get_what_each_asked_for(encoder: Encoder, model: Arithmetic) -> None:
    def ask(index: int) -> bool:
        texts = [f"{(index * step) % 37} of {step}" for step in range(1, 30)]
        return all(np.array_equal(encoder.vectors(texts), wants(texts)) for _ in range(5))

    assert all(in_threads(32, ask))
    assert model.texts == len(
        {f"{(index * step) % 37} of {step}" for step in range(1, 30) for index in range(32)}
    )


def test_a_text_that_two_ask_for_at_a_time_is_asked_once(
    encoder: Encoder, model: Arithmetic
) -> None:
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        asked = [
            pool.submit(encoder.embed, ["the pass under way", f"own {index}", "shared"])
            for index in range(3)
        ]
        until_queued(encoder, 4)
        model.go.set()
        found = [one.result(SOON_S) for one in asked]
    assert model.texts == 5
    assert sum(1 for one in found if one.cpu_s > 0) == 3
    assert np.array_equal(found[0].vectors[2], found[1].vectors[2])


def test_what_was_queued_by_several_is_run_in_one_pass(encoder: Encoder, model: Arithmetic) -> None:
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        asked = [pool.submit(encoder.vectors, [f"text {index}"]) for index in range(4)]
        until_queued(encoder, 4)
        model.go.set()
        for one in asked:
            one.result(SOON_S)
    assert [len(one) for one in model.passes] == [1, 4]


def test_a_lone_text_is_run_at_once_and_waits_for_no_other(
    encoder: Encoder, model: Arithmetic
) -> None:
    encoder.vectors(["alone"])
    assert [len(one) for one in model.passes] == [1]


def find_last_pass(model: Arithmetic, texts: Sequence[str]) -> int:
    """Return the number of the pass with the last of these texts."""
    last = 0
    wanted = [tokens(text) for text in texts]
    for number, one in enumerate(model.passes):
        if any(ids in wanted for ids in one):
            last = number
    return last


def test_a_small_request_goes_before_what_is_left_of_large_ones_and_these_by_age(
    encoder: Encoder, model: Arithmetic
) -> None:
    requests = []
    for name in "ABC":
        requests.append([f"{name * 60}{number}" for number in range(200)])
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        asked = []
        for number, texts in enumerate(requests, start=1):
            asked.append(pool.submit(encoder.vectors, texts))
            until_queued(encoder, 200 * number)
        asked.append(pool.submit(encoder.vectors, ["small"]))
        until_queued(encoder, 601)
        model.go.set()
        for one in asked:
            one.result(SOON_S)
    ends = [find_last_pass(model, texts) for texts in ([["small"], *requests])]
    assert ends == sorted(ends)


def test_what_a_cancelled_attempt_queued_is_not_run_unless_another_waits_for_it(
    encoder: Encoder, model: Arithmetic
) -> None:
    token = CancelToken()

    def ask_under_token() -> None:
        with enter_attempt(token, brief=False):
            encoder.vectors(["shared", "own"])

    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        cancelled = pool.submit(ask_under_token)
        until_queued(encoder, 2)
        other = pool.submit(encoder.vectors, ["shared", "other"])
        until_queued(encoder, 3)
        token.cancel()
        with pytest.raises(InternalFault, match="no client waits"):
            cancelled.result(SOON_S)
        model.go.set()
        assert np.array_equal(other.result(SOON_S), wants(["shared", "other"]))
    token.close()
    run = [ids for one in model.passes for ids in one]
    assert tokens("own") not in run
    assert run.count(tokens("shared")) == 1
    assert np.array_equal(encoder.vectors(["own"]), wants(["own"]))


def test_callers_go_on_when_all_that_was_taken_with_theirs_is_there(
    encoder: Encoder, model: Arithmetic
) -> None:
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        short = pool.submit(encoder.vectors, ["a"])
        until_queued(encoder, 1)
        long = pool.submit(encoder.vectors, ["a" * 60])
        until_queued(encoder, 2)
        short.add_done_callback(lambda _: seen.append(len(model.passes)))
        seen: list[int] = []
        model.go.set()
        long.result(SOON_S)
        short.result(SOON_S)
    assert seen == [3], "the short text has a pass of its own, before the long one's"


def test_callers_that_come_back_with_more_share_passes_again(
    encoder: Encoder, model: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The model waits for answered callers, however slow the machine is.
    monkeypatch.setattr("services.graders.base.batching.CALLER_RESUME_TIMEOUT_S", SOON_S)

    def ask_twice(index: int) -> None:
        encoder.vectors([f"first {index}"])
        encoder.vectors([f"then {index}"])

    with ThreadPoolExecutor(24) as pool:
        held(model, encoder, pool)
        asked = [pool.submit(ask_twice, index) for index in range(20)]
        until_queued(encoder, 20)
        model.go.set()
        for one in asked:
            one.result(SOON_S)
    assert model.texts == 41
    assert len(model.passes) < 1 + 5 + 10, "twenty texts fill three or four passes"


# ------------------------------------------------------------------------------------------ passes


def queued(lengths: Sequence[int]) -> list[Queued[None]]:
    return [Queued([1] * length, Future()) for length in lengths]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=80), st.integers(1, 256))
def test_passes_hold_every_text_once_within_the_bound(lengths: list[int], most: int) -> None:
    made = make_passes(queued(lengths), most)
    assert [len(one.ids) for one in chain(*made)] == sorted(lengths)
    for one in made:
        assert len(one) == 1 or len(one) * len(one[-1].ids) <= most


def test_many_texts_of_few_lengths_are_hardly_padded() -> None:
    lengths = [8 + index % 24 for index in range(480)]
    made = make_passes(queued(lengths), MAX_PASS_TOKENS)
    assert sum(len(one) * len(one[-1].ids) for one in made) < 1.03 * sum(lengths)


# ---------------------------------------------------------------------- what is kept


def test_what_is_kept_stays_within_its_bytes_and_drops_what_was_not_asked_for_longest(
    encoder: Encoder, model: Arithmetic
) -> None:
    encoder._max_bytes = 3 * 420
    for text in ("a", "b", "c", "a", "d"):
        encoder.vectors([text])
    assert list(encoder._sizes) == ["c", "a", "d"]
    assert encoder._futures.keys() == encoder._sizes.keys()
    assert encoder._bytes == sum(encoder._sizes.values()) <= encoder._max_bytes
    encoder.vectors(["b"])
    assert model.texts == 5


def test_an_encoder_that_may_keep_nothing_answers_all_the_same(model: Arithmetic) -> None:
    encoder = Encoder(model, cache_mb=0)
    assert np.array_equal(encoder.vectors(["a", "b", "a"]), wants(["a", "b", "a"]))
    encoder.vectors(["a"])
    assert model.texts == 3
    encoder.close()


# ---------------------------------------------------------------------- what goes wrong


def test_a_text_that_cannot_be_told_harms_nobody_else(encoder: Encoder) -> None:
    def ask(index: int) -> bool:
        if index % 2:
            with pytest.raises(InternalFault, match="no tokens"):
                encoder.vectors([f"text {index}", "untellable"])
            return True
        return np.array_equal(encoder.vectors([f"text {index}"]), wants([f"text {index}"]))

    assert all(in_threads(8, ask))


def test_a_pass_that_breaks_is_a_fault_of_its_texts_and_the_next_is_run(
    encoder: Encoder, model: Arithmetic
) -> None:
    model.breaks_on = ord("#") + 2
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        bad = pool.submit(encoder.vectors, ["#" * 40])
        good = pool.submit(encoder.vectors, ["a" * 50])
        until_queued(encoder, 2)
        model.go.set()
        with pytest.raises(
            InternalFault, match="the story model failed: ValueError: no such token"
        ):
            bad.result(SOON_S)
        assert np.array_equal(good.result(SOON_S), wants(["a" * 50]))
    model.breaks_on = None
    assert np.array_equal(encoder.vectors(["#" * 40]), wants(["#" * 40])), "a fault is not kept"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_vectors_that_are_no_numbers_are_a_fault_and_not_kept(
    encoder: Encoder, model: Arithmetic, number: float
) -> None:
    model.gives = number
    with pytest.raises(InternalFault, match="no usable vectors"):
        encoder.vectors(["a"])
    model.gives = None
    assert np.array_equal(encoder.vectors(["a"]), wants(["a"]))


def test_a_model_that_hangs_is_a_fault_for_all_who_wait(model: Arithmetic) -> None:
    encoder = Encoder(model, hang_s=0.05)
    model.go.clear()
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(encoder.vectors, [f"text {index}"]) for index in range(3)]
        for one in asked:
            with pytest.raises(InternalFault, match="has not answered for 0.05 s"):
                one.result(SOON_S)
    model.go.set()
    encoder.close()


def test_who_gave_up_stands_in_nobody_s_way(model: Arithmetic) -> None:
    encoder = Encoder(model, hang_s=0.2)
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        gone = [pool.submit(encoder.vectors, [f"gave up {index}"]) for index in range(3)]
        for one in gone:
            with pytest.raises(InternalFault, match="has not answered"):
                one.result(SOON_S)
        encoder._model._hang_s = SOON_S  # a busy machine is no hang
        model.go.set()
        assert all(
            np.array_equal(encoder.vectors([f"text {index}"]), wants([f"text {index}"]))
            for index in range(5)
        )
    assert not encoder._model._waiting
    encoder.close()


def test_a_closed_encoder_refuses_and_lets_nobody_wait(model: Arithmetic) -> None:
    encoder = Encoder(model)
    with ThreadPoolExecutor() as pool:
        held(model, encoder, pool)
        waits = pool.submit(encoder.vectors, ["queued"])
        until_queued(encoder, 1)
        closing = pool.submit(encoder.close)
        with pytest.raises(InternalFault, match="closed"):
            waits.result(SOON_S)
        model.go.set()
        closing.result(SOON_S)
    with pytest.raises(InternalFault, match="closed"):
        encoder.vectors(["late"])
    encoder.close()
    assert not encoder._model._thread.is_alive()
