from __future__ import annotations

import json
from typing import Any, NoReturn


def dumps(value: Any) -> bytes:
    """JSON without what JSON does not have (NaN), as UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def loads(data: bytes) -> Any:
    """Reads JSON in UTF-8. Everything that is wrong with it is a ValueError.

    ``json.loads`` alone would also read UTF-16, NaN, and raise RecursionError.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
