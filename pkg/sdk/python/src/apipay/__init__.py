"""ApiPay for Python: payments that cannot be duplicated by a retry.

:class:`ApiPay` is the synchronous client, :class:`AsyncApiPay` the asynchronous one; :class:`WebhookVerifier` checks what
arrives at a webhook endpoint. Every failed call is an :class:`ApiPayError`.
"""

from ._async_client import AsyncApiPay
from ._client import DEFAULT_BASE_URL, ApiPay
from ._errors import ApiPayError, ErrorCode, FieldError, Kind, Problem, SignatureVerificationError
from ._models import (
    DeliveryAttempt,
    Event,
    EventData,
    EventRequest,
    EventType,
    PaymentError,
    PaymentIntent,
    PaymentIntentStatus,
    Recovery,
    Refund,
    RefundStatus,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEndpointStatus,
)
from ._objects import ApiObject, Page, ResponseInfo
from ._options import RequestOptions
from ._secret import Secret
from ._version import __version__
from ._webhooks import DEFAULT_TOLERANCE, SIGNATURE_HEADER, WebhookVerifier

__all__ = [
    "DEFAULT_BASE_URL",
    "DEFAULT_TOLERANCE",
    "SIGNATURE_HEADER",
    "ApiObject",
    "ApiPay",
    "ApiPayError",
    "AsyncApiPay",
    "DeliveryAttempt",
    "ErrorCode",
    "Event",
    "EventData",
    "EventRequest",
    "EventType",
    "FieldError",
    "Kind",
    "Page",
    "PaymentError",
    "PaymentIntent",
    "PaymentIntentStatus",
    "Problem",
    "Recovery",
    "Refund",
    "RefundStatus",
    "RequestOptions",
    "ResponseInfo",
    "Secret",
    "SignatureVerificationError",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookEndpointStatus",
    "WebhookVerifier",
    "__version__",
]
