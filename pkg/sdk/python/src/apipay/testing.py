"""Helps to test receivers of ApiPay's webhooks."""

from __future__ import annotations

import hashlib
import hmac
import math


def sign(payload: bytes, *secrets: str, timestamp: float) -> str:
    """Makes the value of ApiPay-Signature for ``payload``, signed at ``timestamp`` (Unix seconds) with each secret.

    During a rotation webhook-dispatcher signs with both, the active secret first.
    """
    seconds = math.floor(timestamp)
    signed = f"{seconds}.".encode() + payload
    elements = [f"t={seconds}"]
    elements += [f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}" for secret in secrets]
    return ",".join(elements)
