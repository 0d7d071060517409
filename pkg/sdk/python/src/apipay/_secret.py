from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, NoReturn

REDACTED = "[redacted]"


class Secret:
    """A text that is never printed: an API key, or a webhook endpoint's signing secret.

    It prints, logs and formats as ``[redacted]``; :meth:`reveal` gives the text. It cannot be pickled.
    """

    __slots__ = ("_reveal",)

    def __init__(self, text: str) -> None:
        # A closure, because debuggers and loggers print attributes.
        self._reveal: Callable[[], str] = lambda: text

    def reveal(self) -> str:
        """The text itself."""
        return self._reveal()

    def __repr__(self) -> str:
        return f"Secret('{REDACTED}')"

    def __str__(self) -> str:
        return REDACTED

    def __bool__(self) -> bool:
        return self._reveal() != ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._reveal().encode(), other._reveal().encode())

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")
