"""Sending a request once.

httpx's transports are used, not its clients, which would follow redirects if asked to, keep cookies and read proxies from
the environment. What the transports are built on, httpcore, sends again only after ConnectionNotAvailable, which a
connection raises before it writes anything (httpcore/_sync/http11.py, handle_request); HTTP/2, which has replay rules of
its own, is off. Everything else that goes wrong is raised. The conformance vectors hold that against sockets.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import httpcore
import httpx

from ._errors import Kind
from ._policy import Answer, Send

MAX_CONNECTIONS = 100
MAX_KEEPALIVE = 32
KEEPALIVE_EXPIRY = 30.0


class _Progress:
    """Follows one attempt by httpcore's trace, to tell whether anything can have been sent."""

    def __init__(self) -> None:
        self.beyond_connecting = False

    def trace(self, event: str, _: dict[str, Any]) -> None:
        # A failed TLS handshake is a ConnectError too, but it will not get better. Behind a proxy, CONNECT is a request.
        if event.endswith(("start_tls.started", "send_request_headers.started", "setup_socks5_connection.started")):
            self.beyond_connecting = True

    async def atrace(self, event: str, info: dict[str, Any]) -> None:
        self.trace(event, info)

    def connect_failed(self, error: Exception) -> bool:
        return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)) and not self.beyond_connecting


def _request(send: Send, trace: Any, timeouts: dict[str, float | None]) -> httpx.Request:
    return httpx.Request(
        send.method,
        send.url,
        headers=dict(send.headers),
        content=send.body,
        extensions={"trace": trace, "timeout": timeouts},
    )


def _begun(answer: Answer, response: httpx.Response) -> None:
    headers = response.headers
    answer.status = response.status_code
    answer.request_id = headers.get("x-request-id") or None
    answer.replayed = headers.get("idempotent-replayed", "").lower() == "true"
    answer.retry_after = headers.get_list("retry-after")
    # The raw bytes are read, so that no few bytes unpack to gigabytes.
    answer.encoded = headers.get("content-encoding", "identity").lower() not in ("identity", "")


def _append(answer: Answer, body: bytearray, chunk: bytes) -> bool:
    """Keeps a chunk of the body; True if there is more than may be kept."""
    body += chunk
    if len(body) > answer.body_limit:
        answer.truncated = True
        del body[answer.body_limit :]
    return answer.truncated


def _failed(answer: Answer, error: httpx.TransportError, progress: _Progress) -> None:
    answer.failure = _kind(error)
    answer.nothing_sent = progress.connect_failed(error)
    # A new exception: that of the library has a traceback through frames that hold the request, and a protocol error
    # quotes what the server wrote.
    if isinstance(error, httpx.ProtocolError):
        answer.cause = httpx.RemoteProtocolError("the answer broke off, or is not HTTP/1.1")
    else:
        answer.cause = type(error)(str(error))


def _kind(error: httpx.TransportError) -> Kind:
    return "timeout" if isinstance(error, httpx.TimeoutException) else "connection"


class SyncTransport:
    def __init__(self, connect_timeout: float, ssl_context: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._connect_timeout = connect_timeout
        self._transport = _LimitedTransport(ssl_context, proxy)

    def send(self, send: Send) -> Answer:
        answer, progress, body = Answer(), _Progress(), bytearray()
        request = _request(
            send, progress.trace, {"connect": self._connect_timeout, "pool": send.timeout, "read": None, "write": None}
        )
        token = _ends.set(time.monotonic() + send.timeout)
        try:
            response = self._transport.handle_request(request)
            try:
                _begun(answer, response)
                assert isinstance(response.stream, httpx.SyncByteStream)
                for chunk in response.stream:
                    if _append(answer, body, chunk):
                        break
            finally:
                response.close()
        except httpx.TransportError as error:
            _failed(answer, error, progress)
        finally:
            _ends.reset(token)
        answer.body = bytes(body)
        return answer

    def close(self) -> None:
        self._transport.close()


class AsyncTransport:
    def __init__(self, connect_timeout: float, ssl_context: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._connect_timeout = connect_timeout
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl_context,
            proxy=proxy,
            trust_env=False,
            http1=True,
            http2=False,
            retries=0,
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_KEEPALIVE,
                keepalive_expiry=KEEPALIVE_EXPIRY,
            ),
        )

    async def send(self, send: Send) -> Answer:
        answer, progress, body = Answer(), _Progress(), bytearray()
        request = _request(send, progress.atrace, {"connect": self._connect_timeout, "pool": None, "read": None, "write": None})
        # Cancelled before it began: nothing is sent.
        await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(send.timeout) as limit:
            try:
                response = await self._transport.handle_async_request(request)
                try:
                    _begun(answer, response)
                    assert isinstance(response.stream, httpx.AsyncByteStream)
                    async for chunk in response.stream:
                        if _append(answer, body, chunk):
                            break
                finally:
                    await response.aclose()
            except httpx.TransportError as error:
                _failed(answer, error, progress)
        if limit.cancelled_caught:
            answer.failure = "timeout"
            answer.cause = httpx.ReadTimeout("")
            answer.nothing_sent = not progress.beyond_connecting and answer.status is None
        answer.body = bytes(body)
        return answer

    async def aclose(self) -> None:
        await self._transport.aclose()


# Timeouts of httpx are per read and write: an answer that drips would never end. The synchronous transport therefore
# has a network backend that ends everything at one time, which the thread's current attempt sets.
_ends: ContextVar[float] = ContextVar("apipay_attempt_ends")


def _left(timeout: float | None, late: type[Exception]) -> float:
    left = _ends.get() - time.monotonic()
    if left <= 0:
        raise late("")
    return left if timeout is None else min(timeout, left)


class _LimitedBackend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        # The addresses are tried here, for the limit to cover them together; looking them up cannot be interrupted.
        ends = time.monotonic() + _left(timeout, httpcore.ConnectTimeout)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from None
        failure: Exception = httpcore.ConnectError("the name has no address")
        for address in dict.fromkeys(str(item[4][0]) for item in found):
            left = ends - time.monotonic()
            if left <= 0:
                raise httpcore.ConnectTimeout("")
            try:
                stream = self._backend.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _LimitedStream(stream)
        raise failure


class _LimitedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _LimitedStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _LimitedTransport(httpx.BaseTransport):
    """httpx.HTTPTransport, with a network backend of one's own, which that class does not take."""

    def __init__(self, ssl_context: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context,
            proxy=None if proxy is None else _core_proxy(proxy),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_KEEPALIVE,
            keepalive_expiry=KEEPALIVE_EXPIRY,
            http1=True,
            http2=False,
            retries=0,
            network_backend=_LimitedBackend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        url = request.url
        sent = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx():
            response = self._pool.handle_request(sent)
        assert isinstance(response.stream, Iterable)
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response.stream),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._stream

    def close(self) -> None:
        if hasattr(self._stream, "close"):
            self._stream.close()


def _core_proxy(proxy: httpx.Proxy) -> httpcore.Proxy:
    url = httpcore.URL(scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target=proxy.url.raw_path)
    return httpcore.Proxy(url, auth=proxy.raw_auth, headers=proxy.headers.raw, ssl_context=proxy.ssl_context)


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # The first class in the order of resolution that httpx has under the same name: ReadError, ConnectTimeout, ...
        for kind in type(error).__mro__:
            mapped = getattr(httpx, kind.__name__, None)
            if kind.__module__.startswith("httpcore") and isinstance(mapped, type):
                raise mapped(str(error)) from None
        raise
