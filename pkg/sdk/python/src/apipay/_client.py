"""The synchronous client."""

from __future__ import annotations

import random as _random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from . import _calls as calls
from ._calls import Call
from ._errors import argument
from ._models import Event, PaymentIntent, Recovery, Refund, WebhookDelivery, WebhookEndpoint
from ._objects import ApiObject, Page
from ._options import Config, RequestOptions, make_config, make_ssl_context
from ._policy import Answer, Execution, Wait
from ._transport import SyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
O = TypeVar("O", bound=ApiObject)  # noqa: E741

DEFAULT_BASE_URL = "https://api.apipay.io"


class _Core:
    def __init__(self, config: Config, transport: SyncTransport, sleeper: Callable[[float], None]) -> None:
        self.config = config
        self.transport = transport
        self.sleeper = sleeper

    def run(self, call: Call[T], options: Mapping[str, Any]) -> T:
        execution = Execution(self.config, call, options)
        steps = execution.steps()
        answer: Answer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                if isinstance(step, Wait):
                    answer = None
                    self.sleeper(step.seconds)
                else:
                    answer = self.transport.send(step)
            except BaseException as interruption:  # KeyboardInterrupt, or what a signal's handler raises
                execution.interrupted(interruption)
                raise

    def every(self, call: Call[Page[O]], options: Mapping[str, Any]) -> Iterator[O]:
        seen: set[str] = set()
        following: Call[Page[O]] | None = call
        while following is not None:
            page = self.run(following, options)
            yield from page.data
            following = calls.next_page(following, page, seen)


class ApiPay:
    """A client for one API key, ``apk_test_...`` or ``apk_live_...``.

    It may be used by several threads; make one and keep it, since it holds the connections. It is a context manager.

    :param base_url: where ApiPay is reached; a path in it is kept.
    :param timeout: limits each attempt, in seconds, from connecting to the last byte of the answer.
    :param connect_timeout: limits connecting, in seconds.
    :param max_retries: how often a GET is repeated at most; 0 for never. A POST is never repeated.
    :param proxy: the URL of an HTTP proxy. Proxies of the environment are not used.
    :param ssl_context: TLS settings, in place of certifi's roots.
    :param clock: gives Unix seconds; Retry-After dates are compared with it.
    :param sleeper: waits so many seconds.
    :param random: gives numbers in [0,1) for jitter. Idempotency keys do not come from it.
    """

    def __init__(
        self,
        api_key: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        max_retries: int = 2,
        proxy: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        sleeper: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        config = make_config(api_key, base_url, timeout, connect_timeout, max_retries, clock, random)
        transport = SyncTransport(config.connect_timeout, make_ssl_context(ssl_context), make_proxy(proxy))
        self._core = _Core(config, transport, sleeper)
        self.payment_intents = PaymentIntents(self._core)
        self.refunds = Refunds(self._core)
        self.webhook_endpoints = WebhookEndpoints(self._core)
        self.events = Events(self._core)

    def close(self) -> None:
        """Closes the client's connections."""
        self._core.transport.close()

    def __enter__(self) -> ApiPay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ApiPay({self._core.config.base_url!r})"


def make_proxy(url: str | None) -> httpx.Proxy | None:
    if url is None:
        return None
    try:
        return httpx.Proxy(url)
    except (ValueError, TypeError, httpx.InvalidURL):
        pass
    raise argument("that is not the URL of a proxy")


class _Service:
    def __init__(self, core: _Core) -> None:
        self._core = core


class PaymentIntents(_Service):
    """The calls about payment intents. Those that move money are never sent twice; see :class:`ApiPayError`."""

    def create(
        self,
        *,
        amount: int,
        currency: str,
        payment_method: str | None = None,
        confirm: bool | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        merchant_reference: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> PaymentIntent:
        """Makes a payment intent, and confirms it at once with ``confirm=True``."""
        call = calls.create_payment_intent(
            amount=amount,
            currency=currency,
            payment_method=payment_method,
            confirm=confirm,
            description=description,
            metadata=metadata,
            merchant_reference=merchant_reference,
        )
        return self._core.run(call, options)

    def confirm(self, id: str, *, payment_method: str | None = None, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Charges the payment method. The status is ``processing`` while the outcome is unknown."""
        return self._core.run(calls.confirm_payment_intent(id, payment_method), options)

    def cancel(self, id: str, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Cancels an intent that has not succeeded."""
        return self._core.run(calls.cancel_payment_intent(id), options)

    def refund(
        self,
        id: str,
        *,
        amount: int | None = None,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Refund:
        """Gives back ``amount``, or all that is left."""
        return self._core.run(calls.refund_payment_intent(id, amount, reason, metadata), options)

    def get(self, id: str, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Reads a payment intent."""
        return self._core.run(calls.get_payment_intent(id), options)

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        currency: str | None = None,
        merchant_reference: str | None = None,
        created_gte: int | None = None,
        created_lt: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[PaymentIntent]:
        """Reads one page; ``created_gte`` and ``created_lt`` are Unix seconds: from, and before."""
        call = calls.list_payment_intents(
            limit=limit,
            cursor=cursor,
            status=status,
            currency=currency,
            merchant_reference=merchant_reference,
            created_gte=created_gte,
            created_lt=created_lt,
        )
        return self._core.run(call, options)

    def all(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        currency: str | None = None,
        merchant_reference: str | None = None,
        created_gte: int | None = None,
        created_lt: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[PaymentIntent]:
        """Walks over every page, from ``cursor`` on. Each page is a call of its own, retried alone."""
        call = calls.list_payment_intents(
            limit=limit,
            cursor=cursor,
            status=status,
            currency=currency,
            merchant_reference=merchant_reference,
            created_gte=created_gte,
            created_lt=created_lt,
        )
        return self._core.every(call, options)


class Refunds(_Service):
    """The calls about refunds; :meth:`PaymentIntents.refund` makes one."""

    def get(self, id: str, **options: Unpack[RequestOptions]) -> Refund:
        """Reads a refund."""
        return self._core.run(calls.get_refund(id), options)

    def list(
        self,
        payment_intent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Refund]:
        """Reads one page of a payment intent's refunds."""
        return self._core.run(calls.list_refunds(payment_intent, limit=limit, cursor=cursor), options)

    def all(
        self,
        payment_intent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Refund]:
        """Walks over every refund of a payment intent."""
        return self._core.every(calls.list_refunds(payment_intent, limit=limit, cursor=cursor), options)


class WebhookEndpoints(_Service):
    """The calls about webhook endpoints and their deliveries."""

    def create(
        self,
        *,
        url: str,
        enabled_events: Sequence[str],
        description: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> WebhookEndpoint:
        """Makes an endpoint for types of events, or ``["*"]``. Its ``secret`` is shown only here; keep it."""
        call = calls.create_webhook_endpoint(url=url, enabled_events=enabled_events, description=description)
        return self._core.run(call, options)

    def get(self, id: str, **options: Unpack[RequestOptions]) -> WebhookEndpoint:
        """Reads an endpoint."""
        return self._core.run(calls.get_webhook_endpoint(id), options)

    def list(
        self, *, limit: int | None = None, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> Page[WebhookEndpoint]:
        """Reads one page."""
        return self._core.run(calls.list_webhook_endpoints(limit=limit, cursor=cursor), options)

    def all(
        self, *, limit: int | None = None, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> Iterator[WebhookEndpoint]:
        """Walks over every endpoint."""
        return self._core.every(calls.list_webhook_endpoints(limit=limit, cursor=cursor), options)

    def update(
        self,
        id: str,
        *,
        url: str | None = None,
        enabled_events: Sequence[str] | None = None,
        description: str | None = None,
        status: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> WebhookEndpoint:
        """Changes what is given. ``status="enabled"`` enables a disabled endpoint again."""
        call = calls.update_webhook_endpoint(id, url=url, enabled_events=enabled_events, description=description, status=status)
        return self._core.run(call, options)

    def delete(self, id: str, **options: Unpack[RequestOptions]) -> None:
        """Deletes an endpoint; its deliveries stay listed."""
        self._core.run(calls.delete_webhook_endpoint(id), options)

    def rotate_secret(
        self, id: str, *, overlap_seconds: int | None = None, **options: Unpack[RequestOptions]
    ) -> WebhookEndpoint:
        """Makes a new secret, shown only here. The old one signs beside it for a day, or ``overlap_seconds``; 0 revokes it."""
        return self._core.run(calls.rotate_webhook_secret(id, overlap_seconds), options)

    def ping(self, id: str, **options: Unpack[RequestOptions]) -> Event:
        """Sends a ping event to the endpoint and gives the event."""
        return self._core.run(calls.ping_webhook_endpoint(id), options)

    def deliveries(
        self,
        id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[WebhookDelivery]:
        """Reads one page of what was sent to the endpoint."""
        return self._core.run(calls.list_deliveries(id, limit=limit, cursor=cursor, status=status), options)

    def all_deliveries(
        self,
        id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[WebhookDelivery]:
        """Walks over everything that was sent to the endpoint."""
        return self._core.every(calls.list_deliveries(id, limit=limit, cursor=cursor, status=status), options)

    def retry_delivery(self, id: str, delivery: str, **options: Unpack[RequestOptions]) -> WebhookDelivery:
        """Makes a failed delivery due now."""
        return self._core.run(calls.retry_delivery(id, delivery), options)

    def recover(self, id: str, *, since: int, **options: Unpack[RequestOptions]) -> Recovery:
        """Sends everything again that failed since a time in Unix seconds."""
        return self._core.run(calls.recover_webhook_endpoint(id, since), options)


class Events(_Service):
    """The calls about events. They are kept for 30 days."""

    def get(self, id: str, **options: Unpack[RequestOptions]) -> Event:
        """Reads an event."""
        return self._core.run(calls.get_event(id), options)

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        type: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Event]:
        """Reads one page."""
        return self._core.run(calls.list_events(limit=limit, cursor=cursor, type=type), options)

    def all(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        type: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Event]:
        """Walks over every page."""
        return self._core.every(calls.list_events(limit=limit, cursor=cursor, type=type), options)
