"""Clients that are slow or broken on purpose, each kind over a bare socket. They measure
nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

from gradus.contract import MAX_BATCH
from tests.fake_grader import submission

ROUTE = "/v1/grade/ocaml"


def head(n_bytes: int, route: str = ROUTE) -> bytes:
    return (
        f"POST {route} HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length:"
        f" {n_bytes}\r\n\r\n"
    ).encode()


def request(*completions: str, id_length: int = 1, route: str = ROUTE) -> bytes:
    sent = [submission(f"{index:0{id_length}}", text) for index, text in enumerate(completions)]
    body = json.dumps({"submissions": sent, "deadline_s": 600}).encode()
    return head(len(body), route) + body


def slow_head(connection: socket.socket, stop: threading.Event) -> None:
    """One more header line every now and then, and never the last."""
    connection.sendall(b"POST / HTTP/1.1\r\n")
    while not stop.wait(0.1):
        connection.sendall(b"X-More: 1\r\n")


def slow_body(connection: socket.socket, stop: threading.Event) -> None:
    connection.sendall(head(1000))
    while not stop.wait(0.1):
        connection.sendall(b" ")


def half_closed(connection: socket.socket, stop: threading.Event) -> None:
    """Asks for what takes long and will say no more."""
    connection.sendall(request("hold"))
    connection.shutdown(socket.SHUT_WR)
    stop.wait()


def half_closed_in_the_head(connection: socket.socket, stop: threading.Event) -> None:
    connection.sendall(b"POST / HTTP/1.1\r\n")
    connection.shutdown(socket.SHUT_WR)
    stop.wait()


def never_reading(connection: socket.socket, stop: threading.Event) -> None:
    """The answers, 10 MB and more, fit into no kernel's buffer."""
    connection.sendall(request(*["reward 1"] * MAX_BATCH, id_length=256) * 4)
    stop.wait()


def never_reading_a_stream(connection: socket.socket, stop: threading.Event) -> None:
    connection.sendall(
        request(*["reward 1"] * MAX_BATCH, id_length=256, route=f"{ROUTE}/stream") * 4
    )
    stop.wait()


Kind = Callable[[socket.socket, threading.Event], None]
KINDS: tuple[Kind, ...] = (
    slow_head,
    slow_body,
    half_closed,
    half_closed_in_the_head,
    never_reading,
    never_reading_a_stream,
)


@contextmanager
def hanging(url: str, kind: Kind) -> Iterator[None]:
    """Such a client, until the block is left."""
    stop = threading.Event()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((urlsplit(url).hostname, urlsplit(url).port))

        def hang() -> None:
            try:
                kind(connection, stop)
            except OSError:
                stop.wait()  # it was cut off

        thread = threading.Thread(target=hang)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes one that is stuck in sending
            thread.join()


@contextmanager
def a_crowd(url: str, kinds: tuple[Kind, ...] = KINDS, number: int = 20) -> Iterator[None]:
    """That many, of all kinds in turn."""
    with ExitStack() as stack:
        for index in range(number):
            stack.enter_context(hanging(url, kinds[index % len(kinds)]))
        yield
