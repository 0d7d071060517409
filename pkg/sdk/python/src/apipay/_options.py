from __future__ import annotations

import math
import platform
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import httpx

from ._errors import argument
from ._secret import Secret
from ._version import __version__

_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 §5.6.2
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
# The SDK's own; a compressed answer would have to be unpacked.
_RESERVED = frozenset(
    "authorization idempotency-key host content-length content-type transfer-encoding connection trailer expect upgrade "
    "accept-encoding".split()
)


class RequestOptions(TypedDict, total=False):
    """Options of one call, given as keyword arguments."""

    idempotency_key: str
    """The key of a POST: 1 to 255 visible ASCII characters, sent as it is. Without it each call gets a new UUID v4.
    After an error, call again with :attr:`ApiPayError.idempotency_key`."""
    timeout: float
    """Limits each attempt of this call, in seconds, in place of the client's timeout."""
    deadline: float
    """Limits the call as a whole, waits included, in seconds from now. A wait that would end later is not begun."""
    headers: Mapping[str, str]
    """Headers to add. The SDK's own headers cannot be set."""


OPTION_NAMES = frozenset(RequestOptions.__annotations__)


@dataclass(frozen=True)
class Config:
    base_url: str
    authorization: Secret
    timeout: float
    connect_timeout: float
    max_retries: int
    clock: Callable[[], float]
    random: Callable[[], float]


def make_config(
    api_key: str,
    base_url: str,
    timeout: float,
    connect_timeout: float,
    max_retries: int,
    clock: Callable[[], float],
    random: Callable[[], float],
) -> Config:
    if not isinstance(api_key, str) or not _VISIBLE_ASCII.fullmatch(api_key):
        raise argument("the API key is empty or has characters that no key has")
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
        raise argument("max_retries must be 0 or more")
    return Config(
        base_url=checked_base_url(base_url),
        authorization=Secret("Bearer " + api_key),
        timeout=seconds("timeout", timeout),
        connect_timeout=seconds("connect_timeout", connect_timeout),
        max_retries=max_retries,
        clock=clock,
        random=random,
    )


def checked_base_url(text: str) -> str:
    refusal = argument("the base URL must be http(s)://host[:port][/path]")
    if not isinstance(text, str) or not _VISIBLE_ASCII.fullmatch(text):
        raise refusal
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise refusal from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or "?" in text or "#" in text:
        raise refusal
    return text.rstrip("/")


def seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise argument(f"{name} must be a positive number of seconds")
    return float(value)


def checked_key(key: Any) -> str:
    if not isinstance(key, str) or len(key) > 255 or not _VISIBLE_ASCII.fullmatch(key):
        raise argument("an idempotency key is 1 to 255 visible ASCII characters")
    return key


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise argument("that is not a header's name")
        if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
            raise argument("a header's value is ASCII text without a line break")
        if name.lower() in _RESERVED:
            raise argument(f"the SDK sets {name.lower()} itself")
        checked[name.lower()] = value.strip(" \t")
    return checked


USER_AGENT = f"apipay-python/{__version__} (Python {platform.python_version()})"


def make_ssl_context(given: ssl.SSLContext | None) -> ssl.SSLContext:
    if given is not None:
        return given
    return httpx.create_ssl_context(trust_env=False)
