"""The API's objects. Times are Unix seconds; amounts are integers in the currency's minor unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ._objects import ApiObject
from ._secret import Secret


class PaymentIntentStatus:
    """The states of a payment intent. Expect values that are not listed here."""

    REQUIRES_PAYMENT_METHOD: Final = "requires_payment_method"
    REQUIRES_CONFIRMATION: Final = "requires_confirmation"
    PROCESSING: Final = "processing"
    SUCCEEDED: Final = "succeeded"
    CANCELED: Final = "canceled"


class RefundStatus:
    """The states of a refund. Expect values that are not listed here."""

    PENDING: Final = "pending"
    SUCCEEDED: Final = "succeeded"
    FAILED: Final = "failed"


class WebhookEndpointStatus:
    """The states of an endpoint. Expect values that are not listed here."""

    ENABLED: Final = "enabled"
    DISABLED: Final = "disabled"


class EventType:
    """The types of events. Expect values that are not listed here."""

    PAYMENT_INTENT_CREATED: Final = "payment_intent.created"
    PAYMENT_INTENT_PROCESSING: Final = "payment_intent.processing"
    PAYMENT_INTENT_SUCCEEDED: Final = "payment_intent.succeeded"
    PAYMENT_INTENT_PAYMENT_FAILED: Final = "payment_intent.payment_failed"
    PAYMENT_INTENT_CANCELED: Final = "payment_intent.canceled"
    REFUND_CREATED: Final = "refund.created"
    REFUND_SUCCEEDED: Final = "refund.succeeded"
    REFUND_FAILED: Final = "refund.failed"
    WEBHOOK_ENDPOINT_FAILING: Final = "webhook_endpoint.failing"
    WEBHOOK_ENDPOINT_DISABLED: Final = "webhook_endpoint.disabled"
    WEBHOOK_ENDPOINT_RECOVERED: Final = "webhook_endpoint.recovered"
    PING: Final = "ping"


@dataclass(frozen=True, kw_only=True)
class PaymentError(ApiObject):
    """Why the last attempt failed."""

    code: str = ""
    decline_code: str | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class PaymentIntent(ApiObject):
    """One payment. An amount of 1000 is 10.00 EUR, and 1000 JPY."""

    id: str
    object: str = "payment_intent"
    amount: int = 0
    amount_refunded: int = 0
    currency: str = ""
    status: str = ""
    """See :class:`PaymentIntentStatus`."""
    livemode: bool = False
    created: int = 0
    description: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    merchant_reference: str | None = None
    payment_method: str | None = None
    last_payment_error: PaymentError | None = None
    latest_attempt: str | None = None
    version: int = 0
    """Rises by one with each event about the intent: of two events, the one with the higher version is later."""


@dataclass(frozen=True, kw_only=True)
class Refund(ApiObject):
    """Money given back."""

    id: str
    object: str = "refund"
    payment_intent: str = ""
    amount: int = 0
    currency: str = ""
    status: str = ""
    """See :class:`RefundStatus`."""
    failure_reason: str | None = None
    reason: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    livemode: bool = False
    created: int = 0
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class WebhookEndpoint(ApiObject):
    """An address that events are delivered to."""

    id: str
    object: str = "webhook_endpoint"
    url: str = ""
    enabled_events: list[str] = field(default_factory=list)
    description: str | None = None
    status: str = ""
    """See :class:`WebhookEndpointStatus`."""
    disabled_reason: str | None = None
    livemode: bool = False
    created: int = 0
    version: int = 0
    secret: Secret | None = None
    """There only in the answers of ``create`` and ``rotate_secret``; ``secret.reveal()`` is the text."""


@dataclass(frozen=True, kw_only=True)
class DeliveryAttempt(ApiObject):
    """One POST of a delivery."""

    number: int = 0
    trigger: str = ""
    """``scheduled``, ``manual``, ``recovery``"""
    outcome: str = ""
    """``succeeded``, ``failed``, ``superseded``, ``lost``"""
    started_at: int = 0
    latency_ms: int | None = None
    status_code: int | None = None
    error_class: str | None = None
    response_excerpt: str | None = None


@dataclass(frozen=True, kw_only=True)
class WebhookDelivery(ApiObject):
    """One event on its way to one endpoint."""

    id: str
    object: str = "webhook_delivery"
    endpoint_id: str = ""
    endpoint_url: str = ""
    event_id: str = ""
    event_type: str = ""
    status: str = ""
    """``PENDING``, ``RETRYING``, ``DELIVERED``, ``FAILED``"""
    attempt_count: int = 0
    next_attempt_at: int | None = None
    held: str | None = None
    delivered_at: int | None = None
    failed_at: int | None = None
    failure_reason: str | None = None
    created_at: int = 0
    attempts: list[DeliveryAttempt] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Recovery(ApiObject):
    """A request to send again what failed."""

    id: str
    object: str = "recovery"
    endpoint_id: str = ""
    since: int = 0
    status: str = ""
    livemode: bool = False
    created: int = 0


@dataclass(frozen=True, kw_only=True)
class EventRequest(ApiObject):
    """The call that caused an event."""

    id: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class EventData(ApiObject):
    """The object as it was then."""

    object: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Event(ApiObject):
    """A fact that merchants are told. Its id is the same in every delivery: handle each id once."""

    id: str
    type: str = ""
    """See :class:`EventType`."""
    created: int = 0
    livemode: bool = False
    api_version: str = ""
    request: EventRequest | None = None
    data: EventData = field(default_factory=EventData)

    def payment_intent(self) -> PaymentIntent:
        """The object of a payment_intent event."""
        return PaymentIntent.from_dict(self.data.object)

    def refund(self) -> Refund:
        """The object of a refund event."""
        return Refund.from_dict(self.data.object)

    def webhook_endpoint(self) -> WebhookEndpoint:
        """The object of a webhook_endpoint or ping event."""
        return WebhookEndpoint.from_dict(self.data.object)
