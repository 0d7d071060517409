from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

Kind = Literal["api", "connection", "timeout", "canceled", "decode", "argument"]
"""At which stage a call failed.

- ``api``: an answer that is not 2xx; a redirect is one, since none is followed
- ``connection``: a connection that could not be made, or broke before the answer was complete
- ``timeout``: the call reached its timeout or its deadline
- ``canceled``: the call was cancelled, or interrupted
- ``decode``: a 2xx answer, a page or an event that cannot be read
- ``argument``: the call was refused before anything was sent
"""


class ErrorCode:
    """The codes of the API's catalogue, and those that the SDK adds. Expect codes that are not listed here."""

    INVALID_REQUEST: Final = "invalid_request"
    PARAMETER_MISSING: Final = "parameter_missing"
    PARAMETER_UNKNOWN: Final = "parameter_unknown"
    IDEMPOTENCY_KEY_REQUIRED: Final = "idempotency_key_required"
    IDEMPOTENCY_KEY_INVALID: Final = "idempotency_key_invalid"
    CURSOR_INVALID: Final = "cursor_invalid"
    AUTHENTICATION_FAILED: Final = "authentication_failed"
    CARD_DECLINED: Final = "card_declined"
    INSUFFICIENT_SCOPE: Final = "insufficient_scope"
    NOT_FOUND: Final = "not_found"
    METHOD_NOT_ALLOWED: Final = "method_not_allowed"
    INVALID_STATE: Final = "invalid_state"
    IDEMPOTENCY_IN_PROGRESS: Final = "idempotency_in_progress"
    MERCHANT_REFERENCE_IN_USE: Final = "merchant_reference_in_use"
    DELIVERY_PENDING: Final = "delivery_pending"
    DELIVERY_IN_FLIGHT: Final = "delivery_in_flight"
    DELIVERY_DELIVERED: Final = "delivery_delivered"
    ENDPOINT_DISABLED: Final = "endpoint_disabled"
    ENDPOINT_DELETED: Final = "endpoint_deleted"
    PAYLOAD_TOO_LARGE: Final = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE: Final = "unsupported_media_type"
    PARAMETER_INVALID: Final = "parameter_invalid"
    AMOUNT_TOO_SMALL: Final = "amount_too_small"
    AMOUNT_TOO_LARGE: Final = "amount_too_large"
    CURRENCY_INVALID: Final = "currency_invalid"
    REFUND_EXCEEDS_REMAINING: Final = "refund_exceeds_remaining"
    IDEMPOTENCY_KEY_REUSED: Final = "idempotency_key_reused"
    RATE_LIMITED: Final = "rate_limited"
    INTERNAL_ERROR: Final = "internal_error"
    GATEWAY_UNAVAILABLE: Final = "gateway_unavailable"
    SERVICE_UNAVAILABLE: Final = "service_unavailable"

    UNKNOWN: Final = "unknown"
    """An answer without a usable code."""
    CONNECTION_ERROR: Final = "connection_error"
    TIMEOUT: Final = "timeout"
    CANCELED: Final = "canceled"
    INVALID_RESPONSE: Final = "invalid_response"
    INVALID_ARGUMENT: Final = "invalid_argument"


@dataclass(frozen=True)
class FieldError:
    """One refused place of a request."""

    code: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None
    detail: str | None = None


class Problem:
    """An RFC 9457 problem document. ``members`` has everything as it came, unknown members too.

    A member of the wrong type reads as None.
    """

    __slots__ = ("members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members

    def _text(self, name: str) -> str | None:
        value = self.members.get(name)
        return value if isinstance(value, str) else None

    @property
    def type(self) -> str | None:
        return self._text("type")

    @property
    def title(self) -> str | None:
        return self._text("title")

    @property
    def detail(self) -> str | None:
        """A text for people. Never branch on it."""
        return self._text("detail")

    @property
    def instance(self) -> str | None:
        return self._text("instance")

    @property
    def status(self) -> int | None:
        """The body's status; :attr:`ApiPayError.status` is the HTTP status."""
        value = self.members.get("status")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def code(self) -> str | None:
        return self._text("code")

    @property
    def request_id(self) -> str | None:
        return self._text("request_id")

    @property
    def decline_code(self) -> str | None:
        return self._text("decline_code")

    @property
    def payment_intent(self) -> str | None:
        """The id of the intent that a failed create with ``confirm`` has made."""
        return self._text("payment_intent")

    @property
    def retryable(self) -> bool | None:
        value = self.members.get("retryable")
        return value if isinstance(value, bool) else None

    @property
    def errors(self) -> list[FieldError]:
        listed = self.members.get("errors")
        found = []
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, dict):
                texts = {f.name: v for f in fields(FieldError) if isinstance(v := item.get(f.name), str)}
                found.append(FieldError(**{"code": "", **texts}))
        return found


@dataclass
class Facts:
    """What is known of a failed call. Kept apart from the exception, whose attributes loggers print."""

    kind: Kind
    code: str
    status: int | None = None
    problem: Problem | None = None
    body: bytes = b""
    request_id: str | None = None
    idempotency_key: str | None = None
    retry_after: int | None = None
    retry_after_header: str | None = None
    attempts: int = 0
    # Written by the SDK itself.
    reason: str | None = None
    retryable: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        return "<facts>"


class ApiPayError(Exception):
    """What every call of the SDK fails with.

    Its printed forms, tracebacks included, tell what happened and never what the server or you wrote: no detail, no body,
    no credentials. :attr:`problem` and :attr:`body` have those.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        super().__init__(self._summary())

    @property
    def kind(self) -> Kind:
        """At which stage the call failed."""
        return self._facts.kind

    @property
    def code(self) -> str:
        """A stable code, see :class:`ErrorCode`. Branch on it."""
        return self._facts.code

    @property
    def status(self) -> int | None:
        """The answer's HTTP status; None without an answer.

        A call that was cancelled while it waited for a retry has the status and the problem of the answer before the wait.
        """
        return self._facts.status

    @property
    def problem(self) -> Problem | None:
        """The answer's problem document; None if its body is no JSON object."""
        return self._facts.problem

    @property
    def body(self) -> bytes:
        """The answer's raw body, its first MiB at most."""
        return self._facts.body

    @property
    def request_id(self) -> str | None:
        """Names the call in ApiPay's logs: the answer's X-Request-Id."""
        return self._facts.request_id

    @property
    def idempotency_key(self) -> str | None:
        """The key the POST was, or would have been, sent with.

        Store it, and call again with it. Calling again with another key may charge twice.
        """
        return self._facts.idempotency_key

    @property
    def retry_after(self) -> int | None:
        """What the answer's Retry-After asks for, in whole seconds from when it came; None if it is missing or unusable."""
        return self._facts.retry_after

    @property
    def retry_after_header(self) -> str | None:
        """The Retry-After header's own text."""
        return self._facts.retry_after_header

    @property
    def attempts(self) -> int:
        """How many attempts were begun."""
        return self._facts.attempts

    def to_dict(self) -> dict[str, Any]:
        """What the printed form tells, for structured logs."""
        f = self._facts
        members = {
            "kind": f.kind,
            "code": f.code,
            "status": f.status,
            "request_id": f.request_id,
            "idempotency_key": f.idempotency_key,
            "attempts": f.attempts,
        }
        return {name: value for name, value in members.items() if value is not None}

    def _summary(self) -> str:
        f = self._facts
        text = f"{f.kind} error: {f.code}"
        if f.status is not None:
            text += f" (status {f.status})"
        if f.request_id:
            text += f", request {f.request_id}"
        if f.idempotency_key:
            text += f", idempotency key {f.idempotency_key}"
        if f.attempts > 1:
            text += f", after {f.attempts} attempts"
        if f.reason:
            text += f": {f.reason}"
        return text

    def __reduce__(self) -> tuple[type[ApiPayError], tuple[Facts]]:
        # So that the key survives a process pool.
        return type(self), (self._facts,)

    @staticmethod
    def of(error: BaseException | None) -> ApiPayError | None:
        """The ApiPayError that ``error`` is or carries.

        A call that is cancelled or interrupted (``asyncio.CancelledError``, ``KeyboardInterrupt``, ``TimeoutError`` of
        ``asyncio.timeout``) ends in that exception, as it must; this finds the error in it, with the idempotency key::

            except asyncio.CancelledError as canceled:
                if error := ApiPayError.of(canceled):
                    order.save(error.idempotency_key)
                raise
        """
        pending, seen = [error], set[int]()
        while pending:
            candidate = pending.pop(0)
            if candidate is None or id(candidate) in seen:
                continue
            if isinstance(candidate, ApiPayError):
                return candidate
            seen.add(id(candidate))
            pending += [candidate.__cause__, candidate.__context__]
        return None


def argument(reason: str) -> ApiPayError:
    """A call that is refused before anything is sent. ``reason`` must not quote what the caller wrote."""
    return ApiPayError(Facts("argument", ErrorCode.INVALID_ARGUMENT, reason=reason))


def invalid_response(reason: str) -> ApiPayError:
    return ApiPayError(Facts("decode", ErrorCode.INVALID_RESPONSE, reason=reason))


class SignatureVerificationError(Exception):
    """A payload is not, or not recently, signed with any of the secrets. Answer 400 and do nothing else.

    Its text is fixed: it never carries what was received.
    """
