"""The Python SDK's runner of the vectors in pkg/sdk/conformance: one job per line on stdin, one answer per line on stdout.

The protocol is described there. ``runner.py sync`` drives ApiPay, ``runner.py async`` AsyncApiPay.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import inspect
import itertools
import json
import logging
import pprint
import random
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from apipay import ApiPay, ApiPayError, AsyncApiPay, SignatureVerificationError, WebhookEndpoint, WebhookVerifier
from apipay._retry import backoff
from apipay.testing import sign

Json = dict[str, Any]
POSITIONAL = ("id", "delivery", "payment_intent")


class Session:
    """One job's client, and what is recorded of it."""

    def __init__(self, job: Json) -> None:
        self.options = job["client"]
        self.sleeps: list[float] = []
        self.keys: list[str | None] = []
        numbers = self.options.get("random")
        self.random: Callable[[], float] = itertools.cycle(numbers).__next__ if numbers else random.random

    def clock(self) -> float:
        return float(self.options["clock_ms"]) / 1000

    def arguments(self) -> Json:
        given = self.options
        arguments = {"api_key": given["api_key"], "base_url": given["base_url"], "clock": self.clock}
        if "random" in given:
            arguments["random"] = self.random
        for name in ("timeout", "connect_timeout"):
            if name + "_ms" in given:
                arguments[name] = given[name + "_ms"] / 1000
        if "max_retries" in given:
            arguments["max_retries"] = given["max_retries"]
        return arguments

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds * 1000)
        if self.options["sleeper"] == "real":
            time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleeps.append(seconds * 1000)
        if self.options["sleeper"] == "real":
            await asyncio.sleep(seconds)

    def call_options(self, step: Json) -> Json:
        given, options = step.get("options") or {}, {}
        for name in ("timeout", "deadline"):
            if name + "_ms" in given:
                options[name] = given[name + "_ms"] / 1000
        for name in ("idempotency_key", "headers"):
            if name in given:
                options[name] = given[name]
        if "idempotency_key_from_step" in given:
            options["idempotency_key"] = self.keys[given["idempotency_key_from_step"]]
        return options

    def local(self, method: str, args: Json) -> Any:
        """What needs no client."""
        if method == "backoff.sample":
            return [backoff(args["n"], self.random()) * 1000 for _ in range(args["count"])]
        payload = base64.b64decode(args["payload_base64"])
        if method == "webhooks.sign":
            return {"header": sign(payload, *args["secrets"], timestamp=args["timestamp"])}
        verifier = WebhookVerifier(*args["secrets"], tolerance=args.get("tolerance_seconds", 300), clock=self.clock)
        if method == "webhooks.construct_event":
            return verifier.construct_event(payload, args["header"])
        verifier.verify(payload, args["header"])
        return {"verified": True}

    def result(self, step: Json, value: Any, error: BaseException | None, ids: list[str]) -> Json:
        result: Json = {"sleeps_ms": self.sleeps}
        if error is None:
            result["ok"] = plain(value)
            self.keys.append(None)
        else:
            fields = error_fields(error)
            result["error"] = fields
            self.keys.append(fields.get("idempotency_key"))
            if step["method"].split(".")[1].startswith("all"):
                result["ids"] = ids
        return result


def plain(value: Any) -> Any:
    """The value as JSON, with the secret that its own form hides."""
    if not hasattr(value, "to_dict"):
        return value
    members = value.to_dict()
    if isinstance(value, WebhookEndpoint) and value.secret is not None:
        members["secret"] = value.secret.reveal()
    return members


def error_fields(raised: BaseException) -> Json:
    if isinstance(raised, SignatureVerificationError):
        return {"kind": "signature", "code": "signature_verification_failed"}
    error = ApiPayError.of(raised)
    if error is None:
        raise raised
    fields: Json = {"kind": error.kind, "code": error.code, "attempts": error.attempts}
    known = {
        "status": error.status,
        "problem": error.problem and error.problem.members,
        "request_id": error.request_id,
        "idempotency_key": error.idempotency_key,
        "retry_after": error.retry_after_header,
        "retry_after_seconds": error.retry_after,
        "has_cause": error.__cause__ is not None or None,
    }
    fields.update({name: value for name, value in known.items() if value is not None})
    if error.status is not None:
        fields["body_length"] = len(error.body)
        fields["body_prefix"] = error.body.decode("utf-8", "replace")[:100]
    return fields


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def printed(value: Any) -> list[str]:
    """Every form in which a program may print an error, a client or a result."""
    forms = [str(value), repr(value), f"{value}", f"{value!s:>10}", f"{[value]}", pprint.pformat(value)]
    forms += [repr(vars(value)) if hasattr(value, "__dict__") else "", json.dumps(value, default=repr)]
    forms += [repr(copy.copy(value)), pprint.pformat(vars(value)) if hasattr(value, "__dict__") else ""]
    if isinstance(value, BaseException):
        lines = _Lines()
        lines.handle(logging.LogRecord("merchant", logging.ERROR, "", 0, "%s %r", (value, value), None))
        chained = RuntimeError("creating the payment")
        chained.__cause__ = value
        forms += lines.lines + [repr(value.args)]
        forms += ["".join(traceback.format_exception(e)) for e in (value, chained)]
        if isinstance(value, ApiPayError):
            forms.append(json.dumps(value.to_dict()))
    elif isinstance(value, (ApiPay, AsyncApiPay)):
        for service in ("payment_intents", "refunds", "webhook_endpoints", "events", "_core"):
            inner = getattr(value, service)
            forms += [repr(inner), pprint.pformat(vars(inner)), *map(repr, vars(inner).values())]
    return forms


def run_sync(job: Json) -> list[Json]:
    session = Session(job)
    results = []
    with ApiPay(sleeper=session.sleep, **session.arguments()) as client:
        for step in job["steps"]:
            session.sleeps, ids = [], list[str]()
            value: Any = None
            raised: BaseException | None = None
            started = time.monotonic()
            try:
                value = call(session, client, step)
                if isinstance(value, Iterator):
                    ids, value = collect(value, ids, step), {"ids": ids}
            except (ApiPayError, SignatureVerificationError) as error:
                raised = error
            result = session.result(step, value, raised, ids)
            result["elapsed_ms"] = (time.monotonic() - started) * 1000
            if step.get("print"):
                result["printed"] = printed(raised or value or client)
            results.append(result)
    return results


def call(session: Session, client: ApiPay | AsyncApiPay, step: Json) -> Any:
    """The call's result; an awaitable of it, or an iterator."""
    method, args = step["method"], dict(step.get("args") or {})
    if method == "client.print":
        return None
    if method.startswith(("webhooks.", "backoff.")):
        return session.local(method, args)
    args.pop("take", None)
    service, name = method.split(".")
    function = getattr(getattr(client, service), name)
    # refunds.list takes its payment intent by position.
    positional = [args.pop(n) for n in POSITIONAL if n in args]
    return function(*positional, **args, **session.call_options(step))


def collect(items: Iterator[Any], ids: list[str], step: Json) -> list[str]:
    for item in items:
        ids.append(item.id)
        if len(ids) == (step.get("args") or {}).get("take"):
            break
    return ids


async def acollect(items: AsyncIterator[Any], ids: list[str], step: Json) -> Json:
    async for item in items:
        ids.append(item.id)
        if len(ids) == (step.get("args") or {}).get("take"):
            break
    return {"ids": ids}


async def run_async(job: Json) -> list[Json]:
    session = Session(job)
    results = []
    async with AsyncApiPay(sleeper=session.asleep, **session.arguments()) as client:
        for step in job["steps"]:
            session.sleeps, ids = [], list[str]()
            results.append(await async_step(session, client, step, ids))
    return results


async def async_step(session: Session, client: AsyncApiPay, step: Json, ids: list[str]) -> Json:
    cancel_after = step.get("cancel_after_ms")

    async def run() -> Any:
        if cancel_after == 0:
            # The call itself must begin, to tell its key; a task that never began would not have made it.
            cancel()
        value = call(session, client, step)
        if isinstance(value, AsyncIterator):
            return await acollect(value, ids, step)
        return await value if inspect.isawaitable(value) else value

    canceled_at: float | None = None

    def cancel() -> None:
        nonlocal canceled_at
        canceled_at = time.monotonic()
        task.cancel()

    value: Any = None
    raised: BaseException | None = None
    started = time.monotonic()
    task = asyncio.ensure_future(run())
    timer = asyncio.get_running_loop().call_later(cancel_after / 1000, cancel) if cancel_after else None
    try:
        value = await task
    except (ApiPayError, SignatureVerificationError, asyncio.CancelledError) as error:
        raised = error
    returned = time.monotonic()
    if timer is not None:
        timer.cancel()
    result = session.result(step, value, raised, ids)
    result["elapsed_ms"] = (returned - started) * 1000
    if canceled_at is not None:
        result["cancel_latency_ms"] = max(0.0, (returned - canceled_at) * 1000)
    if step.get("print"):
        result["printed"] = printed(raised or value or client)
    return result


def main() -> None:
    loop = asyncio.new_event_loop()
    for line in sys.stdin:
        job = json.loads(line)
        steps = run_sync(job) if sys.argv[1] == "sync" else loop.run_until_complete(run_async(job))
        print(json.dumps({"vector": job["vector"], "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
