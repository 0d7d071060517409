"""How the API's objects are read: typed members are checked, unknown ones are kept."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from ._errors import invalid_response
from ._secret import REDACTED, Secret

O = TypeVar("O", bound="ApiObject")  # noqa: E741


@dataclass(frozen=True)
class ResponseInfo:
    """What a successful call was answered with, besides the object."""

    status: int
    """201 for what was created, and 202 while an outcome is unknown."""
    request_id: str | None
    idempotency_key: str | None
    replayed: bool
    """The key was known: the answer is that of the first call."""
    attempts: int


@dataclass(frozen=True, kw_only=True)
class ApiObject:
    """An object of the API."""

    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Members that this version of the SDK does not know, as they came."""
    response: ResponseInfo | None = field(default=None, repr=False, compare=False)
    """How the call was answered that gave this object; None for an object inside another one."""
    _members: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_dict(cls: type[O], members: Any) -> O:
        """Reads the object. A member of the wrong type is an ApiPayError with code invalid_response."""
        try:
            return _read(cls, members)
        except _Unreadable:
            raise invalid_response("that is not the object that is due") from None

    def to_dict(self) -> dict[str, Any]:
        """The object as it came, unknown members included; but a secret is ``[redacted]``."""
        return copy.deepcopy(dict(self._members))


# Not fields of the API.
_OWN = frozenset(f.name for f in fields(ApiObject))


class _Unreadable(Exception):
    pass


def _read(cls: type[O], members: Any) -> O:
    if not isinstance(members, dict):
        raise _Unreadable
    readers = _readers(cls)  # type: ignore[arg-type]  # a class is hashable
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    kept = members
    for name, value in members.items():
        reader = readers.get(name)
        if reader is None:
            extra[name] = value
        elif value is not None:
            known[name] = reader(value)
            if isinstance(known[name], Secret):
                kept = {**kept, name: REDACTED}
    if not _required(cls) <= known.keys():  # type: ignore[arg-type]  # a class is hashable
        raise _Unreadable
    return cls(extra=extra, _members=kept, **known)


@functools.cache
def _required(cls: type[ApiObject]) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)


@functools.cache
def _readers(cls: type[ApiObject]) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(cls)
    return {f.name: _reader(hints[f.name]) for f in fields(cls) if f.name not in _OWN}


def _reader(hint: Any) -> Callable[[Any], Any]:  # noqa: PLR0911
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin is Union or origin is types.UnionType:
        return _reader(next(a for a in arguments if a is not type(None)))  # X | None; null was handled before
    if origin is list:
        item = _reader(arguments[0])
        return lambda value: [item(v) for v in _checked(value, list)]
    if origin in (dict, Mapping) or hint is dict:
        member = _reader(arguments[1])
        return lambda value: {k: member(v) for k, v in _checked(value, dict).items()}
    if hint is Secret:
        return lambda value: Secret(_checked(value, str))
    if isinstance(hint, type) and issubclass(hint, ApiObject):
        return functools.partial(_read, hint)
    return functools.partial(_checked, wanted=hint)


def _checked(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:  # a bool is no int
        raise _Unreadable
    return value


@dataclass(frozen=True, kw_only=True)
class Page(ApiObject, Generic[O]):
    """One page of a list, newest first."""

    data: list[O] = field(default_factory=list)
    has_more: bool = False
    next_cursor: str | None = None
    """The cursor of the next page; None on the last one."""


def read_page(item: type[O], members: Any) -> Page[O]:
    try:
        if not isinstance(members, dict):
            raise _Unreadable
        data = [_read(item, m) for m in _checked(members.get("data", []), list)]
        has_more = _checked(members.get("has_more", False), bool)
        cursor = members.get("next_cursor")
        if cursor is not None:
            _checked(cursor, str)
    except _Unreadable:
        raise invalid_response("that is not the list that is due") from None
    extra = {n: v for n, v in members.items() if n not in ("object", "data", "has_more", "next_cursor")}
    kept = {**members, "data": [d.to_dict() for d in data]}
    return Page(data=data, has_more=has_more, next_cursor=cursor, extra=extra, _members=kept)


def with_response(value: Any, response: ResponseInfo) -> Any:
    return replace(value, response=response) if isinstance(value, ApiObject) else value
