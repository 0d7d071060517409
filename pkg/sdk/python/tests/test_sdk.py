"""What the vectors of pkg/sdk/conformance do not reach: things of Python. They play against sockets too."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pickle
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import apipay
from apipay import ApiPay, ApiPayError, AsyncApiPay, Secret, WebhookEndpoint, WebhookVerifier
from apipay.testing import sign

KEY = "apk_test_KEYMARKER"
INTENT = b'{"id":"pi_1","amount":1,"currency":"EUR","status":"succeeded"}'


class Server:
    """Answers each connection with ``play``, which is given the connection after its first request's header section."""

    def __init__(self, play: Callable[[socket.socket], None]) -> None:
        self._play = play
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            received = b""
            while b"\r\n\r\n" not in received:
                chunk = connection.recv(65536)
                if not chunk:
                    return
                received += chunk
            self.requests += 1
            self._play(connection)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], Server]]:
    servers: list[Server] = []

    def start(play: Callable[[socket.socket], None]) -> Server:
        servers.append(Server(play))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Callable[[socket.socket], None]], Server]


def answer(body: bytes) -> Callable[[socket.socket], None]:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    return lambda connection: connection.sendall(head + body)


def drip(first: bytes) -> Callable[[socket.socket], None]:
    """Sends a byte every 50 ms, so that no single read ever takes long."""

    def play(connection: socket.socket) -> None:
        connection.sendall(first)
        for _ in range(200):
            connection.sendall(b"x")
            threading.Event().wait(0.05)

    return play


def stall(connection: socket.socket) -> None:
    """Ends with the caller, who closes the connection."""
    while connection.recv(65536):
        pass


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 OK\r\nX-Drip: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"],
    ids=["header", "body"],
)
def test_timeout_covers_an_answer_that_drips(serve: Serve, first: bytes) -> None:
    server = serve(drip(first))

    async def asynchronous() -> None:
        async with AsyncApiPay(KEY, base_url=server.url, timeout=0.4) as client:
            await client.payment_intents.get("pi_1")

    def synchronous() -> None:
        with ApiPay(KEY, base_url=server.url, timeout=0.4) as client:
            client.payment_intents.get("pi_1")

    for call in (synchronous, lambda: asyncio.run(asynchronous())):
        started = time.monotonic()
        with pytest.raises(ApiPayError) as caught:
            call()
        assert (caught.value.kind, caught.value.attempts) == ("timeout", 1)
        assert time.monotonic() - started < 3
    assert server.requests == 2


def test_interrupted_call_tells_its_key(serve: Serve) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    server = serve(
        lambda connection: connection.sendall(b"HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    )
    with ApiPay(KEY, base_url=server.url, sleeper=interrupt) as client, pytest.raises(KeyboardInterrupt) as caught:
        client.payment_intents.get("pi_1")
    error = ApiPayError.of(caught.value)
    assert error is not None
    assert (error.kind, error.status, error.attempts) == ("canceled", 500, 1)


def test_wait_for_leaves_the_key_reachable(serve: Serve) -> None:
    server = serve(stall)

    async def run() -> ApiPayError | None:
        async with AsyncApiPay(KEY, base_url=server.url) as client:
            try:
                await asyncio.wait_for(client.payment_intents.create(amount=1, currency="EUR"), 0.3)
            except asyncio.TimeoutError as late:
                return ApiPayError.of(late)
        return None

    error = asyncio.run(run())
    assert error is not None
    assert error.kind == "canceled"
    assert error.idempotency_key
    assert server.requests == 1


def test_one_client_serves_many_threads(serve: Serve) -> None:
    server = serve(answer(INTENT))
    with ApiPay(KEY, base_url=server.url) as client, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: client.payment_intents.get("pi_1").amount, range(64)))
    assert found == [1] * 64
    assert server.requests == 64


def test_environment_proxies_are_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(answer(b"{}"))
    server = serve(answer(INTENT.replace(b"pi_1", b"pi_direct")))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def asynchronous() -> str:
        async with AsyncApiPay(KEY, base_url=server.url) as client:
            return (await client.payment_intents.get("pi_1")).id

    with ApiPay(KEY, base_url=server.url) as client:
        assert client.payment_intents.get("pi_1").id == "pi_direct"
    assert asyncio.run(asynchronous()) == "pi_direct"
    assert proxy.requests == 0


def test_proxy_that_was_asked_for_is_used(serve: Serve) -> None:
    proxy = serve(answer(INTENT.replace(b"pi_1", b"pi_proxied")))

    async def asynchronous() -> str:
        async with AsyncApiPay(KEY, base_url="http://hub.invalid", proxy=proxy.url) as client:
            return (await client.payment_intents.get("pi_1")).id

    with ApiPay(KEY, base_url="http://hub.invalid", proxy=proxy.url) as client:
        assert client.payment_intents.get("pi_1").id == "pi_proxied"
    assert asyncio.run(asynchronous()) == "pi_proxied"


def test_traceback_with_locals_has_no_api_key(serve: Serve) -> None:
    server = serve(lambda connection: None)
    with ApiPay(KEY, base_url=server.url) as client, pytest.raises(ApiPayError) as caught:
        client.payment_intents.create(amount=1, currency="EUR")
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "connection_error" in shown
    assert "KEYMARKER" not in shown


def test_error_survives_pickling(serve: Serve) -> None:
    server = serve(lambda connection: None)
    with ApiPay(KEY, base_url=server.url) as client, pytest.raises(ApiPayError) as caught:
        client.payment_intents.create(amount=1, currency="EUR", idempotency_key="order-1")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copied, ApiPayError)
    assert (str(copied), copied.idempotency_key) == (str(caught.value), "order-1")


@pytest.mark.parametrize(
    "body",
    [
        b'{"amount":1000,"currency":"EUR","status":"succeeded"}',
        b'{"id":null,"amount":1000,"currency":"EUR","status":"succeeded"}',
        b'{"id":"pi_1","amount":1.0,"currency":"EUR","status":"succeeded"}',
        b'{"id":"pi_1","amount":NaN,"currency":"EUR","status":"succeeded"}',
        b"[" * 100_000,
    ],
    ids=["missing", "null", "float", "nan", "deep"],
)
def test_answers_that_are_no_payment_intent(serve: Serve, body: bytes) -> None:
    with ApiPay(KEY, base_url=serve(answer(body)).url) as client, pytest.raises(ApiPayError) as caught:
        client.payment_intents.get("pi_1")
    assert (caught.value.kind, caught.value.code, caught.value.status) == ("decode", "invalid_response", 200)


@pytest.mark.parametrize("amount", [10.0, True, "10", 1e3])
def test_amounts_are_integers(amount: object) -> None:
    with ApiPay(KEY, base_url="http://127.0.0.1:1") as client, pytest.raises(ApiPayError) as caught:
        client.payment_intents.create(amount=amount, currency="EUR")  # type: ignore[arg-type]
    assert caught.value.kind == "argument"


def test_unknown_option_is_a_type_error() -> None:
    with ApiPay(KEY, base_url="http://127.0.0.1:1") as client, pytest.raises(TypeError, match="timout"):
        client.payment_intents.get("pi_1", timout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "base_url", ["", "ftp://x", "http://", "https://u:p@h", "https://h/?q", "https://h/#f", "h", "http://a b"]
)
def test_base_url_is_checked(base_url: str) -> None:
    with pytest.raises(ApiPayError) as caught:
        ApiPay(KEY, base_url=base_url)
    assert caught.value.kind == "argument"


def test_secret_is_not_printed_or_pickled() -> None:
    endpoint = WebhookEndpoint.from_dict({"id": "we_1", "secret": "whsec_MARKER"})
    assert endpoint.secret is not None
    assert endpoint.secret.reveal() == "whsec_MARKER"
    assert "MARKER" not in f"{endpoint} {endpoint!r} {vars(endpoint)} {endpoint.to_dict()} {endpoint.secret}"
    with pytest.raises(TypeError):
        pickle.dumps(Secret("whsec_MARKER"))


def test_verifier_accepts_what_the_helper_signs() -> None:
    verifier = WebhookVerifier("whsec_new", "whsec_old", clock=lambda: 1700000000.9)
    payload = (
        b'{"id":"evt_1","type":"refund.failed","data":{"object":{"id":"re_1","amount":5,"currency":"EUR","status":"failed"}}}'
    )
    event = verifier.construct_event(payload, sign(payload, "whsec_old", timestamp=1700000000))
    assert (event.id, event.refund().amount) == ("evt_1", 5)


def test_both_clients_have_the_same_methods() -> None:
    pairs = [
        (apipay._client.PaymentIntents, apipay._async_client.AsyncPaymentIntents),
        (apipay._client.Refunds, apipay._async_client.AsyncRefunds),
        (apipay._client.WebhookEndpoints, apipay._async_client.AsyncWebhookEndpoints),
        (apipay._client.Events, apipay._async_client.AsyncEvents),
    ]
    for synchronous, asynchronous in pairs:
        names = [name for name in vars(synchronous) if not name.startswith("_")]
        assert names == [name for name in vars(asynchronous) if not name.startswith("_")]
        for name in names:
            one, other = (inspect.signature(getattr(owner, name)) for owner in (synchronous, asynchronous))
            assert one.parameters == other.parameters, name
