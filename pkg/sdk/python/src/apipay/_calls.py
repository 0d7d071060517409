"""What each method of the API sends. The synchronous and the asynchronous client share it."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from . import _json
from ._errors import ApiPayError, Facts, argument
from ._models import Event, PaymentIntent, Recovery, Refund, WebhookDelivery, WebhookEndpoint
from ._objects import ApiObject, Page, read_page

T = TypeVar("T")
O = TypeVar("O", bound=ApiObject)  # noqa: E741

_ID = re.compile(r"[A-Za-z0-9_-]+")  # with any other character an id could change the path


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call: what is sent, and how the answer is read."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    # Without a result the answer's body is not looked at.
    has_result: bool = True

    @property
    def target(self) -> str:
        return self.path + ("?" + urllib.parse.urlencode(self.query) if self.query else "")


def _path(*parts: str) -> str:
    for part in parts[1::2]:
        if not isinstance(part, str) or not _ID.fullmatch(part):
            raise argument("that is not an id")
    return "/v1/" + "/".join(parts)


def _body(**members: Any) -> bytes | None:
    """JSON of what was given; None if nothing was."""
    given = {name: value for name, value in members.items() if value is not None}
    return _written(given) if given else None


def _written(value: Any) -> bytes:
    try:
        return _json.dumps(value)
    except (TypeError, ValueError, RecursionError):  # ValueError: lone surrogates and NaN too
        pass
    raise argument("the parameters cannot be written as JSON")


def _integer(name: str, value: int | None) -> int | None:
    # Amounts are exact: 10.0 and Decimal("10") are not taken for 10.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise argument(f"{name} must be an int")
    return value


def _query(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _list(item: type[O], path: str, query: dict[str, str]) -> Call[Page[O]]:
    return Call("GET", path, partial(read_page, item), query)


def next_page(call: Call[Page[O]], page: Page[O], seen: set[str]) -> Call[Page[O]] | None:
    """The call for the page after ``page``; None after the last one."""
    seen.add(call.query.get("cursor", ""))
    if not page.has_more:
        return None
    if page.next_cursor is None or page.next_cursor in seen:
        response = page.response
        raise ApiPayError(
            Facts(
                "decode",
                "invalid_response",
                status=response.status if response else None,
                request_id=response.request_id if response else None,
                attempts=response.attempts if response else 0,
                reason="the list has more, but its cursor is missing or was there before",
            )
        )
    return replace(call, query={**call.query, "cursor": page.next_cursor})


# Payment intents


def create_payment_intent(
    *,
    amount: int,
    currency: str,
    payment_method: str | None,
    confirm: bool | None,
    description: str | None,
    metadata: Mapping[str, str] | None,
    merchant_reference: str | None,
) -> Call[PaymentIntent]:
    body = _body(
        amount=_integer("amount", amount),
        currency=currency,
        payment_method=payment_method,
        confirm=confirm,
        description=description,
        metadata=dict(metadata) if metadata is not None else None,
        merchant_reference=merchant_reference,
    )
    return Call("POST", _path("payment-intents"), PaymentIntent.from_dict, body=body)


def confirm_payment_intent(id: str, payment_method: str | None) -> Call[PaymentIntent]:
    body = _body(payment_method=payment_method)
    return Call("POST", _path("payment-intents", id, "confirm"), PaymentIntent.from_dict, body=body)


def cancel_payment_intent(id: str) -> Call[PaymentIntent]:
    return Call("POST", _path("payment-intents", id, "cancel"), PaymentIntent.from_dict)


def refund_payment_intent(id: str, amount: int | None, reason: str | None, metadata: Mapping[str, str] | None) -> Call[Refund]:
    metadata = dict(metadata) if metadata is not None else None
    body = _body(amount=_integer("amount", amount), reason=reason, metadata=metadata) or b"{}"
    return Call("POST", _path("payment-intents", id, "refunds"), Refund.from_dict, body=body)


def get_payment_intent(id: str) -> Call[PaymentIntent]:
    return Call("GET", _path("payment-intents", id), PaymentIntent.from_dict)


def list_payment_intents(
    *,
    limit: int | None,
    cursor: str | None,
    status: str | None,
    currency: str | None,
    merchant_reference: str | None,
    created_gte: int | None,
    created_lt: int | None,
) -> Call[Page[PaymentIntent]]:
    query = _query(
        limit=_integer("limit", limit),
        cursor=cursor,
        status=status,
        currency=currency,
        merchant_reference=merchant_reference,
        **{
            "created[gte]": _integer("created_gte", created_gte),
            "created[lt]": _integer("created_lt", created_lt),
        },
    )
    return _list(PaymentIntent, _path("payment-intents"), query)


# Refunds


def get_refund(id: str) -> Call[Refund]:
    return Call("GET", _path("refunds", id), Refund.from_dict)


def list_refunds(payment_intent: str, *, limit: int | None, cursor: str | None) -> Call[Page[Refund]]:
    query = _query(limit=_integer("limit", limit), cursor=cursor)
    return _list(Refund, _path("payment-intents", payment_intent, "refunds"), query)


# Webhook endpoints


def create_webhook_endpoint(*, url: str, enabled_events: Sequence[str], description: str | None) -> Call[WebhookEndpoint]:
    if isinstance(enabled_events, str):
        raise argument("enabled_events is a list")
    body = _body(url=url, enabled_events=list(enabled_events), description=description)
    return Call("POST", _path("webhook-endpoints"), WebhookEndpoint.from_dict, body=body)


def get_webhook_endpoint(id: str) -> Call[WebhookEndpoint]:
    return Call("GET", _path("webhook-endpoints", id), WebhookEndpoint.from_dict)


def list_webhook_endpoints(*, limit: int | None, cursor: str | None) -> Call[Page[WebhookEndpoint]]:
    query = _query(limit=_integer("limit", limit), cursor=cursor)
    return _list(WebhookEndpoint, _path("webhook-endpoints"), query)


def update_webhook_endpoint(
    id: str, *, url: str | None, enabled_events: Sequence[str] | None, description: str | None, status: str | None
) -> Call[WebhookEndpoint]:
    if isinstance(enabled_events, str):
        raise argument("enabled_events is a list")
    events = list(enabled_events) if enabled_events is not None else None
    body = _body(url=url, enabled_events=events, description=description, status=status)
    if body is None:
        raise argument("there is nothing to change")
    return Call("PATCH", _path("webhook-endpoints", id), WebhookEndpoint.from_dict, body=body)


def delete_webhook_endpoint(id: str) -> Call[None]:
    return Call("DELETE", _path("webhook-endpoints", id), lambda _: None, has_result=False)


def rotate_webhook_secret(id: str, overlap_seconds: int | None) -> Call[WebhookEndpoint]:
    body = _body(overlap_seconds=_integer("overlap_seconds", overlap_seconds))
    return Call("POST", _path("webhook-endpoints", id, "rotate-secret"), WebhookEndpoint.from_dict, body=body)


def ping_webhook_endpoint(id: str) -> Call[Event]:
    return Call("POST", _path("webhook-endpoints", id, "ping"), Event.from_dict)


def list_deliveries(id: str, *, limit: int | None, cursor: str | None, status: str | None) -> Call[Page[WebhookDelivery]]:
    query = _query(limit=_integer("limit", limit), cursor=cursor, status=status)
    return _list(WebhookDelivery, _path("webhook-endpoints", id, "deliveries"), query)


def retry_delivery(id: str, delivery: str) -> Call[WebhookDelivery]:
    return Call("POST", _path("webhook-endpoints", id, "deliveries", delivery, "retry"), WebhookDelivery.from_dict)


def recover_webhook_endpoint(id: str, since: int) -> Call[Recovery]:
    body = _body(since=_integer("since", since))
    return Call("POST", _path("webhook-endpoints", id, "recover"), Recovery.from_dict, body=body)


# Events


def get_event(id: str) -> Call[Event]:
    return Call("GET", _path("events", id), Event.from_dict)


def list_events(*, limit: int | None, cursor: str | None, type: str | None) -> Call[Page[Event]]:
    return _list(Event, _path("events"), _query(limit=_integer("limit", limit), cursor=cursor, type=type))
