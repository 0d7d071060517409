"""One call from its arguments to its result, without any I/O: a generator that the two clients drive."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from . import _json, _retry
from ._calls import Call
from ._errors import ApiPayError, ErrorCode, Facts, Kind, Problem
from ._objects import ResponseInfo, with_response
from ._options import OPTION_NAMES, USER_AGENT, Config, checked_headers, checked_key, seconds

T = TypeVar("T")

MAX_ERROR_BODY = 1 << 20
MAX_SUCCESS_BODY = 16 << 20


@dataclass(frozen=True)
class Send:
    """Send the request once."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    timeout: float


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass
class Answer:
    """What came of a Send: an answer (status, headers, body), or a failure, which may have begun as an answer."""

    status: int | None = None
    request_id: str | None = None
    replayed: bool = False
    retry_after: list[str] = field(default_factory=list)
    encoded: bool = False
    body: bytes = field(default=b"", repr=False)
    truncated: bool = False
    failure: Kind | None = None
    cause: Exception | None = None
    # The connection could not be made: nothing of the request was sent.
    nothing_sent: bool = False

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def body_limit(self) -> int:
        return MAX_SUCCESS_BODY if self.succeeded else MAX_ERROR_BODY


class Execution(Generic[T]):
    """One call. ``steps`` is driven by a client; ``interrupted`` is the error of a call that was cut off in between."""

    def __init__(self, config: Config, call: Call[T], options: Mapping[str, Any]) -> None:
        if unknown := set(options) - OPTION_NAMES:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        given = {name: value for name, value in options.items() if value is not None}
        self._config = config
        self._call = call
        self._timeout = seconds("timeout", given.get("timeout", config.timeout))
        self._ends: float | None = None
        if "deadline" in given:
            self._ends = time.monotonic() + seconds("deadline", given["deadline"])
        key = checked_key(given["idempotency_key"]) if "idempotency_key" in given else None
        # Only a POST has one. uuid4 takes its bytes from the system's secure source.
        self.key = (key or str(uuid.uuid4())) if call.method == "POST" else None
        self._headers = checked_headers(given.get("headers", {}))
        self._url = config.base_url + call.target
        self._attempts = 0
        self._last: Facts | None = None

    def _all_headers(self) -> dict[str, str]:
        headers = {"accept": "application/json, application/problem+json", "user-agent": USER_AGENT, **self._headers}
        headers["accept-encoding"] = "identity"
        headers["authorization"] = self._config.authorization.reveal()
        if self._call.body is not None:
            headers["content-type"] = "application/json"
        if self.key is not None:
            headers["idempotency-key"] = self.key
        return headers

    def steps(self) -> Generator[Send | Wait, Answer | None, T]:
        for n in range(self._config.max_retries + 1):
            limit = self._timeout
            if self._ends is not None:
                limit = min(limit, self._ends - time.monotonic())
                if limit <= 0:
                    raise self._ended("timeout", ErrorCode.TIMEOUT)
            self._attempts, self._last = n + 1, None
            answer = yield Send(self._call.method, self._url, self._all_headers(), self._call.body, limit)
            assert answer is not None
            if answer.failure is None and answer.succeeded:
                return self._result(answer)
            facts = self._facts(answer)
            self._last = facts
            error = ApiPayError(facts)
            error.__cause__ = answer.cause
            if self._call.method != "GET" or not facts.retryable or n >= self._config.max_retries:
                raise error
            wait = self._wait(n, facts)
            if self._ends is not None and time.monotonic() + wait >= self._ends:
                raise error
            yield Wait(wait)
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, n: int, facts: Facts) -> float:
        """The time before retry n+1: Retry-After where the policy obeys it, else jitter."""
        obeyed = (facts.status, facts.code) in (
            (429, ErrorCode.RATE_LIMITED),
            (503, ErrorCode.GATEWAY_UNAVAILABLE),
        )
        if obeyed and facts.retry_after is not None:
            return float(min(facts.retry_after, _retry.MAX_WAIT))
        return _retry.backoff(n, self._config.random())

    def _facts(self, answer: Answer) -> Facts:
        facts = Facts("api", ErrorCode.UNKNOWN, status=answer.status, request_id=answer.request_id, attempts=self._attempts)
        facts.idempotency_key = self.key
        if answer.failure is not None:
            facts.kind = answer.failure
            facts.code = ErrorCode.TIMEOUT if answer.failure == "timeout" else ErrorCode.CONNECTION_ERROR
            facts.retryable = answer.nothing_sent
            return facts
        facts.body = answer.body
        facts.problem = _problem(answer)
        if facts.problem is not None and facts.problem.code:
            facts.code = facts.problem.code
        facts.retry_after_header = ", ".join(answer.retry_after) if answer.retry_after else None
        facts.retry_after = _retry.retry_after(answer.retry_after, self._config.clock())
        assert answer.status is not None
        facts.retryable = answer.status == 429 or answer.status >= 500
        return facts

    def _result(self, answer: Answer) -> T:
        assert answer.status is not None
        response = ResponseInfo(answer.status, answer.request_id, self.key, answer.replayed, self._attempts)
        reason = None
        if not self._call.has_result:
            return self._call.read(None)
        if answer.truncated:
            reason = "the answer is larger than 16 MiB"
        elif answer.encoded:
            reason = "the answer is compressed, which was not asked for"
        else:
            try:
                return with_response(self._call.read(_json.loads(answer.body)), response)  # type: ignore[no-any-return]
            except (ValueError, ApiPayError):  # their texts, and their context, may quote the answer
                reason = "the answer's body is not the JSON that is due"
        facts = Facts("decode", ErrorCode.INVALID_RESPONSE, status=answer.status, request_id=answer.request_id)
        facts.body = answer.body[:MAX_ERROR_BODY]
        facts.idempotency_key, facts.attempts, facts.reason = self.key, self._attempts, reason
        raise ApiPayError(facts)

    def _ended(self, kind: Kind, code: str) -> ApiPayError:
        """What is known of the last answer stays in it."""
        facts = self._last or Facts(kind, code, idempotency_key=self.key)
        return ApiPayError(Facts(**{**vars(facts), "kind": kind, "code": code, "attempts": self._attempts}))

    def interrupted(self, by: BaseException) -> None:
        """Attaches the call's error to the exception that cuts it off, for ApiPayError.of to find."""
        if by.__cause__ is None and not isinstance(by, ApiPayError):
            by.__cause__ = self._ended("canceled", ErrorCode.CANCELED)


def _problem(answer: Answer) -> Problem | None:
    try:
        members = _json.loads(answer.body)
    except ValueError:
        return None
    return Problem(members) if isinstance(members, dict) else None
