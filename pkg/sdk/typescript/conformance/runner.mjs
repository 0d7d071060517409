// The TypeScript SDK's runner of the vectors in pkg/sdk/conformance: one job per line on stdin, one answer per line on stdout.
// The protocol is described there.
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { format, inspect } from "node:util";

import { ApiPay, ApiPayError, SignatureVerificationError, WebhookVerifier } from "../dist/esm/index.js";
import { backoff } from "../dist/esm/retry.js";
import { sign } from "../dist/esm/testing.js";

const services = {
  payment_intents: "paymentIntents", refunds: "refunds", webhook_endpoints: "webhookEndpoints", events: "events",
};
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** One job's client, and what is recorded of it. */
class Session {
  constructor(options) {
    this.options = options;
    this.sleeps = [];
    this.keys = [];
    let next = 0;
    this.random = options.random?.length ? () => options.random[next++ % options.random.length] : Math.random;
    this.clock = () => options.clock_ms;
    this.client = new ApiPay(options.api_key, {
      baseURL: options.base_url,
      clock: this.clock,
      sleeper: async (ms, signal) => {
        this.sleeps.push(ms);
        if (options.sleeper === "real") await delay(ms, undefined, { signal });
      },
      ...(options.random && { random: this.random }),
      // fetch has no limit of its own for connecting; the attempt's limit covers it.
      ...(options.timeout_ms !== undefined && { timeoutMs: options.timeout_ms }),
      ...(options.max_retries !== undefined && { maxRetries: options.max_retries }),
    });
  }

  async step(step) {
    this.sleeps = [];
    const ids = [];
    const controller = new AbortController();
    let canceledAt;
    const cancel = () => {
      canceledAt = performance.now();
      controller.abort();
    };
    const timer = step.cancel_after_ms > 0 ? setTimeout(cancel, step.cancel_after_ms) : undefined;
    if (step.cancel_after_ms === 0) cancel();
    const started = performance.now();
    let value;
    let error;
    try {
      value = await this.call(step, controller.signal, ids);
    } catch (thrown) {
      error = thrown;
    }
    const returned = performance.now();
    clearTimeout(timer);
    const result = { sleeps_ms: this.sleeps, elapsed_ms: returned - started };
    if (canceledAt !== undefined) result.cancel_latency_ms = Math.max(0, returned - canceledAt);
    if (error === undefined) {
      result.ok = plain(value) ?? null;
    } else {
      result.error = fieldsOf(error);
      if (step.method.includes(".all")) result.ids = ids;
    }
    this.keys.push(result.error?.idempotency_key);
    if (step.print) result.printed = printed(error ?? value ?? this.client);
    return result;
  }

  callOptions({ options = {} }, signal) {
    const key = options.idempotency_key_from_step === undefined ? options.idempotency_key : this.keys[options.idempotency_key_from_step];
    return {
      signal,
      ...(key !== undefined && { idempotencyKey: key }),
      ...(options.timeout_ms !== undefined && { timeoutMs: options.timeout_ms }),
      ...(options.deadline_ms !== undefined && { deadlineMs: options.deadline_ms }),
      ...(options.headers && { headers: options.headers }),
    };
  }

  async call(step, signal, ids) {
    const { id, delivery, payment_intent: paymentIntent, take, created_gte, created_lt, ...params } = step.args ?? {};
    const [group, name] = step.method.split(".");
    if (group === "client") return undefined;
    if (group === "webhooks" || group === "backoff") return this.local(name, step.args);
    if (created_gte !== undefined || created_lt !== undefined) params.created = { gte: created_gte, lt: created_lt };
    const service = this.client[services[group]];
    const method = service[camel(name)];
    const positional = [id, paymentIntent, delivery].filter((value) => value !== undefined);
    // get, cancel, delete, ping and retryDelivery have no parameters besides ids.
    const withoutParams = ["get", "cancel", "delete", "ping", "retry_delivery"].includes(name);
    const args = [...positional, ...(withoutParams ? [] : [params]), this.callOptions(step, signal)];
    const called = method.apply(service, args);
    if (!name.startsWith("all")) return called;
    for await (const item of called) {
      ids.push(item.id);
      if (ids.length === take) break;
    }
    return { ids };
  }

  local(name, args) {
    if (name === "sample") return Array.from({ length: args.count }, () => backoff(args.n, this.random()));
    const payload = Buffer.from(args.payload_base64, "base64");
    if (name === "sign") return { header: sign(payload, args.secrets, args.timestamp) };
    const verifier = new WebhookVerifier(args.secrets, {
      clock: this.clock, ...(args.tolerance_seconds !== undefined && { tolerance: args.tolerance_seconds }),
    });
    if (name === "construct_event") return verifier.constructEvent(payload, args.header);
    verifier.verify(payload, args.header);
    return { verified: true };
  }
}

/** The value as JSON, with the secret that its own form hides. */
function plain(value) {
  return value?.secret === undefined ? value : { ...value, secret: value.secret.reveal() };
}

function fieldsOf(error) {
  if (error instanceof SignatureVerificationError) return { kind: "signature", code: "signature_verification_failed" };
  if (!(error instanceof ApiPayError)) throw error;
  const fields = {
    kind: error.kind, code: error.code, status: error.status, problem: error.problem, request_id: error.requestId,
    idempotency_key: error.idempotencyKey, retry_after: error.retryAfterHeader || undefined, retry_after_seconds: error.retryAfter,
    attempts: error.attempts, has_cause: error.cause === undefined ? undefined : true,
  };
  if (error.status !== undefined) {
    fields.body_length = error.body.length;
    fields.body_prefix = Buffer.from(error.body).toString("utf8").slice(0, 100);
  }
  return fields;
}

/** Every form in which a program may print an error, a client or a result. */
function printed(value) {
  const all = { showHidden: true, depth: Infinity, getters: false };
  const forms = [
    inspect(value), inspect(value, all), inspect(value, { ...all, customInspect: false }), inspect([{ value }], { depth: Infinity }),
    format("%s %o %O %j", value, value, value, value), JSON.stringify({ value }), JSON.stringify(Object.entries(value)),
    inspect({ ...value }, all), inspect(structuredCloned(value), all),
  ];
  if (value instanceof Error) {
    const chained = new Error("creating the payment", { cause: value });
    forms.push(String(value), value.stack, value.message, inspect(chained, all), format(chained));
    for (let cause = value.cause; cause !== undefined; cause = cause.cause) forms.push(String(cause), inspect(cause, all));
  } else {
    forms.push(Object.prototype.hasOwnProperty.call(Object.getPrototypeOf(value), "toString") ? String(value) : "");
    for (const member of Object.values(value)) forms.push(inspect(member, all), JSON.stringify(member) ?? "", String(member));
  }
  return forms;
}

function structuredCloned(value) {
  try {
    return structuredClone(value);
  } catch {
    return undefined; // has functions
  }
}

/** JSON with bigints as the integers that they are. */
function toJSON(value) {
  const marker = "\u0001bigint:";
  const text = JSON.stringify(value, (_, v) => (typeof v === "bigint" ? marker + v : v));
  return text.replace(/"\\u0001bigint:(-?[0-9]+)"/g, "$1");
}

await (await fetch("data:,")).text(); // loads fetch, which takes a while the first time
const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
for await (const line of lines) {
  const job = JSON.parse(line);
  const session = new Session(job.client);
  const steps = [];
  for (const step of job.steps) steps.push(await session.step(step));
  if (!process.stdout.write(`${toJSON({ vector: job.vector, steps })}\n`)) await once(process.stdout, "drain");
}
process.exit(0); // fetch's idle connections would keep the process for a while
