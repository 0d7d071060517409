from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections.abc import Callable

from . import _json
from ._errors import ApiPayError, SignatureVerificationError, invalid_response
from ._models import Event
from ._secret import Secret

SIGNATURE_HEADER = "ApiPay-Signature"
DEFAULT_TOLERANCE = 300

_MAX_HEADER = 4096
_MAX_TIMESTAMP_DIGITS = 15
_DIGITS = re.compile(r"[0-9]+")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")


class WebhookVerifier:
    """Verifies deliveries.

    :param secrets: the endpoint's secrets; during a rotation the new one and the old one. None may be empty.
    :param tolerance: how many seconds old, or ahead, a signature may be; 0 allows the current second only.
    :param clock: gives Unix seconds.
    """

    def __init__(
        self, *secrets: str | Secret, tolerance: int = DEFAULT_TOLERANCE, clock: Callable[[], float] = time.time
    ) -> None:
        self._secrets = [s if isinstance(s, Secret) else Secret(s) for s in secrets]
        self._tolerance = tolerance
        self._clock = clock

    def __repr__(self) -> str:
        return f"WebhookVerifier({len(self._secrets)} secrets)"

    def verify(self, payload: bytes, header: str | None) -> None:
        """Checks that ``header``, the value of ApiPay-Signature, signs ``payload``: the body's bytes as they were received.

        Every refusal is a :class:`SignatureVerificationError`.
        """
        if not self._secrets:
            raise SignatureVerificationError("no secret is configured")
        # The HMAC under an empty key is anybody's.
        if not all(self._secrets):
            raise SignatureVerificationError("a configured secret is empty")
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise SignatureVerificationError("the payload must be the body's bytes")
        timestamp, signatures = _parse(header)
        digits = timestamp.lstrip("0")
        if len(digits) > _MAX_TIMESTAMP_DIGITS:
            raise SignatureVerificationError("the timestamp is outside the tolerance")
        if abs(math.floor(self._clock()) - int(digits or "0")) > self._tolerance:
            raise SignatureVerificationError("the timestamp is outside the tolerance")
        matches = False
        for secret in self._secrets:
            # The digits as they were received.
            mac = hmac.new(secret.reveal().encode(), timestamp.encode() + b".", hashlib.sha256)
            mac.update(payload)
            wanted = mac.hexdigest()
            for signature in signatures:
                matches |= hmac.compare_digest(wanted, signature)
        if not matches:
            raise SignatureVerificationError("no signature fits")

    def construct_event(self, payload: bytes, header: str | None) -> Event:
        """Verifies, and then reads the event.

        A payload that is signed but is no event is an :class:`ApiPayError` with code ``invalid_response``.
        """
        self.verify(payload, header)
        try:
            return Event.from_dict(_json.loads(bytes(payload).removeprefix(b"\xef\xbb\xbf")))
        except (ValueError, ApiPayError):
            pass
        raise invalid_response("the payload is not an event's JSON")


def _parse(header: str | None) -> tuple[str, list[str]]:
    """Reads ``t=<digits>,v1=<hex>[,v1=<hex>]``. Unknown elements are ignored, and so is a v1 that is no signature."""
    malformed = SignatureVerificationError("the header is malformed")
    if not isinstance(header, str) or len(header.encode("utf-8", "surrogatepass")) > _MAX_HEADER:
        raise malformed
    timestamp: str | None = None
    signatures = []
    for element in header.split(","):
        name, equals, value = element.strip(" \t").partition("=")
        if not equals:
            raise malformed
        if name == "t":
            if timestamp is not None or not _DIGITS.fullmatch(value):
                raise malformed
            timestamp = value
        elif name == "v1" and _SIGNATURE.fullmatch(value):
            signatures.append(value)
    if timestamp is None:
        raise malformed
    return timestamp, signatures
