"""The asynchronous client."""

from __future__ import annotations

import random as _random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from . import _calls as calls
from ._calls import Call
from ._client import DEFAULT_BASE_URL, make_proxy
from ._models import Event, PaymentIntent, Recovery, Refund, WebhookDelivery, WebhookEndpoint
from ._objects import ApiObject, Page
from ._options import Config, RequestOptions, make_config, make_ssl_context
from ._policy import Answer, Execution, Wait
from ._transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
O = TypeVar("O", bound=ApiObject)  # noqa: E741


class _Core:
    def __init__(self, config: Config, transport: AsyncTransport, sleeper: Callable[[float], Awaitable[None]]) -> None:
        self.config = config
        self.transport = transport
        self.sleeper = sleeper

    async def run(self, call: Call[T], options: Mapping[str, Any]) -> T:
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
                    await self.sleeper(step.seconds)
                else:
                    answer = await self.transport.send(step)
            except BaseException as interruption:  # above all CancelledError
                execution.interrupted(interruption)
                raise

    async def every(self, call: Call[Page[O]], options: Mapping[str, Any]) -> AsyncIterator[O]:
        seen: set[str] = set()
        following: Call[Page[O]] | None = call
        while following is not None:
            page = await self.run(following, options)
            for item in page.data:
                yield item
            following = calls.next_page(following, page, seen)


class AsyncApiPay:
    """A client for one API key, ``apk_test_...`` or ``apk_live_...``.

    Make one for each event loop and keep it, since it holds the connections. It is an asynchronous context manager. A call that
    is cancelled ends in CancelledError; :meth:`ApiPayError.of` finds the idempotency key in it.

    :param base_url: where ApiPay is reached; a path in it is kept.
    :param timeout: limits each attempt, in seconds, from connecting to the last byte of the answer.
    :param connect_timeout: limits connecting, in seconds.
    :param max_retries: how often a GET is repeated at most; 0 for never. A POST is never repeated.
    :param proxy: the URL of an HTTP proxy. Proxies of the environment are not used.
    :param ssl_context: TLS settings, in place of certifi's roots.
    :param clock: gives Unix seconds; Retry-After dates are compared with it.
    :param sleeper: waits so many seconds, and ends early when it is cancelled.
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
        sleeper: Callable[[float], Awaitable[None]] = anyio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        config = make_config(api_key, base_url, timeout, connect_timeout, max_retries, clock, random)
        transport = AsyncTransport(config.connect_timeout, make_ssl_context(ssl_context), make_proxy(proxy))
        self._core = _Core(config, transport, sleeper)
        self.payment_intents = AsyncPaymentIntents(self._core)
        self.refunds = AsyncRefunds(self._core)
        self.webhook_endpoints = AsyncWebhookEndpoints(self._core)
        self.events = AsyncEvents(self._core)

    async def aclose(self) -> None:
        """Closes the client's connections."""
        await self._core.transport.aclose()

    async def __aenter__(self) -> AsyncApiPay:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncApiPay({self._core.config.base_url!r})"


class _Service:
    def __init__(self, core: _Core) -> None:
        self._core = core


class AsyncPaymentIntents(_Service):
    """The calls about payment intents. Those that move money are never sent twice; see :class:`ApiPayError`."""

    async def create(
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
        return await self._core.run(call, options)

    async def confirm(self, id: str, *, payment_method: str | None = None, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Charges the payment method. The status is ``processing`` while the outcome is unknown."""
        return await self._core.run(calls.confirm_payment_intent(id, payment_method), options)

    async def cancel(self, id: str, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Cancels an intent that has not succeeded."""
        return await self._core.run(calls.cancel_payment_intent(id), options)

    async def refund(
        self,
        id: str,
        *,
        amount: int | None = None,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Refund:
        """Gives back ``amount``, or all that is left."""
        return await self._core.run(calls.refund_payment_intent(id, amount, reason, metadata), options)

    async def get(self, id: str, **options: Unpack[RequestOptions]) -> PaymentIntent:
        """Reads a payment intent."""
        return await self._core.run(calls.get_payment_intent(id), options)

    async def list(
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
        return await self._core.run(call, options)

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
    ) -> AsyncIterator[PaymentIntent]:
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


class AsyncRefunds(_Service):
    """The calls about refunds; :meth:`AsyncPaymentIntents.refund` makes one."""

    async def get(self, id: str, **options: Unpack[RequestOptions]) -> Refund:
        """Reads a refund."""
        return await self._core.run(calls.get_refund(id), options)

    async def list(
        self,
        payment_intent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Refund]:
        """Reads one page of a payment intent's refunds."""
        return await self._core.run(calls.list_refunds(payment_intent, limit=limit, cursor=cursor), options)

    def all(
        self,
        payment_intent: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[Refund]:
        """Walks over every refund of a payment intent."""
        return self._core.every(calls.list_refunds(payment_intent, limit=limit, cursor=cursor), options)


class AsyncWebhookEndpoints(_Service):
    """The calls about webhook endpoints and their deliveries."""

    async def create(
        self,
        *,
        url: str,
        enabled_events: Sequence[str],
        description: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> WebhookEndpoint:
        """Makes an endpoint for types of events, or ``["*"]``. Its ``secret`` is shown only here; keep it."""
        call = calls.create_webhook_endpoint(url=url, enabled_events=enabled_events, description=description)
        return await self._core.run(call, options)

    async def get(self, id: str, **options: Unpack[RequestOptions]) -> WebhookEndpoint:
        """Reads an endpoint."""
        return await self._core.run(calls.get_webhook_endpoint(id), options)

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> Page[WebhookEndpoint]:
        """Reads one page."""
        return await self._core.run(calls.list_webhook_endpoints(limit=limit, cursor=cursor), options)

    def all(
        self, *, limit: int | None = None, cursor: str | None = None, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[WebhookEndpoint]:
        """Walks over every endpoint."""
        return self._core.every(calls.list_webhook_endpoints(limit=limit, cursor=cursor), options)

    async def update(
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
        return await self._core.run(call, options)

    async def delete(self, id: str, **options: Unpack[RequestOptions]) -> None:
        """Deletes an endpoint; its deliveries stay listed."""
        await self._core.run(calls.delete_webhook_endpoint(id), options)

    async def rotate_secret(
        self, id: str, *, overlap_seconds: int | None = None, **options: Unpack[RequestOptions]
    ) -> WebhookEndpoint:
        """Makes a new secret, shown only here. The old one signs beside it for a day, or ``overlap_seconds``; 0 revokes it."""
        return await self._core.run(calls.rotate_webhook_secret(id, overlap_seconds), options)

    async def ping(self, id: str, **options: Unpack[RequestOptions]) -> Event:
        """Sends a ping event to the endpoint and gives the event."""
        return await self._core.run(calls.ping_webhook_endpoint(id), options)

    async def deliveries(
        self,
        id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[WebhookDelivery]:
        """Reads one page of what was sent to the endpoint."""
        return await self._core.run(calls.list_deliveries(id, limit=limit, cursor=cursor, status=status), options)

    def all_deliveries(
        self,
        id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[WebhookDelivery]:
        """Walks over everything that was sent to the endpoint."""
        return self._core.every(calls.list_deliveries(id, limit=limit, cursor=cursor, status=status), options)

    async def retry_delivery(self, id: str, delivery: str, **options: Unpack[RequestOptions]) -> WebhookDelivery:
        """Makes a failed delivery due now."""
        return await self._core.run(calls.retry_delivery(id, delivery), options)

    async def recover(self, id: str, *, since: int, **options: Unpack[RequestOptions]) -> Recovery:
        """Sends everything again that failed since a time in Unix seconds."""
        return await self._core.run(calls.recover_webhook_endpoint(id, since), options)


class AsyncEvents(_Service):
    """The calls about events. They are kept for 30 days."""

    async def get(self, id: str, **options: Unpack[RequestOptions]) -> Event:
        """Reads an event."""
        return await self._core.run(calls.get_event(id), options)

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        type: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Page[Event]:
        """Reads one page."""
        return await self._core.run(calls.list_events(limit=limit, cursor=cursor, type=type), options)

    def all(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        type: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[Event]:
        """Walks over every page."""
        return self._core.every(calls.list_events(limit=limit, cursor=cursor, type=type), options)
