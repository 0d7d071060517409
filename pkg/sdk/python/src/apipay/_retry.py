"""The two calculations of the retry policy: how long to wait, and what Retry-After says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone

BASE = 0.5
CEILING = 8.0
_CEILING_N = 4  # BASE * 2**_CEILING_N is the ceiling
MAX_WAIT = 60
"""The longest wait, in seconds, that a server's Retry-After can ask for."""
_MAX_SECONDS = 2**31 - 1


def backoff(n: int, random: float) -> float:
    """The wait in seconds before retry n+1, n from 0: full jitter, ``random`` times the smaller of 500 ms * 2**n and 8 s."""
    limit = CEILING if n >= _CEILING_N else BASE * 2 ** max(n, 0)
    if not random >= 0:  # NaN too
        return 0.0
    return min(random, 1.0) * limit


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_IMF_FIXDATE = re.compile(
    rf"({'|'.join(_DAYS)}), ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) ([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}}) GMT"
)
_DIGITS = re.compile(r"[0-9]+")


def retry_after(values: Sequence[str], now: float) -> int | None:
    """How many whole seconds from ``now`` a Retry-After header asks for, rounded up and never negative.

    Only digits and IMF-fixdate count; anything else, and a header that is there more than once, is None.
    """
    if len(values) != 1:
        return None
    text = values[0].strip(" \t")
    if _DIGITS.fullmatch(text):
        digits = text.lstrip("0")
        # RFC 9111 asks for the greatest number one can represent; the length is judged first, int() refuses long ones.
        return _MAX_SECONDS if len(digits) > 10 else min(int(digits or "0"), _MAX_SECONDS)
    match = _IMF_FIXDATE.fullmatch(text)
    if match is None:
        return None
    day_name, day, month, year, hour, minute, second = match.groups()
    try:
        date = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=timezone.utc)
    except ValueError:
        return None
    if _DAYS[date.weekday()] != day_name:
        return None
    return min(max(math.ceil(date.timestamp() - now), 0), _MAX_SECONDS)
