import { randomUUID } from "node:crypto";

import { ApiPayError, type ErrorKind, type Facts, type Problem, refusal } from "./errors.js";
import { parseJSON } from "./json.js";
import type { Page } from "./models.js";
import { type RequestOptions, USER_AGENT, checkedHeaders, checkedKey, checkedMs } from "./options.js";
import { MAX_WAIT_SECONDS, backoff, retryAfterSeconds } from "./retry.js";
import type { Shape } from "./shape.js";
import { type Answer, type Request, abortKind, send } from "./transport.js";

export interface Config {
  baseURL: string;
  /** A function, for no printed form of the configuration to have the key. */
  authorization: () => string;
  timeoutMs: number;
  maxRetries: number;
  fetch: typeof globalThis.fetch;
  clock: () => number;
  sleeper: (ms: number, signal: AbortSignal) => Promise<void>;
  random: () => number;
}

/** One call: what is sent, and how the answer is read. */
export interface Call<T> {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  /** Names and ids in turn. */
  path: string[];
  query?: Record<string, string | number | undefined>;
  /** Members that are undefined are not sent; undefined, or without any member, sends an empty body. */
  body?: Record<string, unknown> | undefined;
  /** Sends `{}` rather than an empty body. */
  atLeastBraces?: boolean;
  /** Undefined: the answer's body is not looked at. */
  shape: Shape<T> | undefined;
}

const ID = /^[A-Za-z0-9_-]+$/; // with any other character an id could change the path

/** Makes a call: one attempt, and for a GET the retries that the policy allows. */
export async function run<T>(config: Config, call: Call<T>, options: RequestOptions = {}): Promise<T> {
  const timeoutMs = options.timeoutMs === undefined ? config.timeoutMs : checkedMs("timeoutMs", options.timeoutMs);
  const ends = options.deadlineMs === undefined ? Infinity : performance.now() + checkedMs("deadlineMs", options.deadlineMs);
  const given = options.idempotencyKey === undefined ? undefined : checkedKey(options.idempotencyKey);
  // Only a POST has one. randomUUID takes its bytes from the system's secure source.
  const idempotencyKey = call.method === "POST" ? (given ?? randomUUID()) : undefined;
  const request = written(config, call, options, idempotencyKey);
  let last: Facts | undefined;
  for (let n = 0; ; n++) {
    const over = interruption(options.signal, ends);
    if (over !== undefined) throw interrupted(over, last ?? { kind: over, code: over, idempotencyKey, attempts: n });
    const answer = await send(config.fetch, request, Math.min(timeoutMs, ends - performance.now()), options.signal);
    const attempts = n + 1;
    if (answer.failure === undefined && isSuccess(answer)) return result(call, answer, options, idempotencyKey, attempts);
    const facts: Facts = { ...factsOf(answer, config.clock()), idempotencyKey, attempts };
    last = facts;
    if (call.method !== "GET" || !isRetryable(answer) || n >= config.maxRetries) throw new ApiPayError(facts);
    const wait = waitOf(n, facts, config.random);
    if (performance.now() + wait >= ends) throw new ApiPayError(facts);
    await slept(config, wait, options.signal);
    if (options.signal?.aborted) throw interrupted(abortKind(options.signal), facts);
  }
}

/** Walks over every page. Each page is a call of its own, retried alone. Leaving the loop fetches nothing more. */
export async function* every<T>(config: Config, call: Call<Page<T>>, options: RequestOptions = {}): AsyncGenerator<T, void, undefined> {
  const seen = new Set<unknown>([call.query?.["cursor"]]);
  let query = call.query;
  for (;;) {
    let attempts = 0;
    let requestId: string | undefined;
    let status: number | undefined;
    const page = await run(config, { ...call, ...(query && { query }) }, {
      ...options,
      onResponse(response) {
        ({ attempts, requestId, status } = response);
        options.onResponse?.(response);
      },
    });
    yield* page.data;
    if (!page.has_more) return;
    const cursor = page.next_cursor ?? undefined;
    if (cursor === undefined || seen.has(cursor)) {
      const reason = "the list has more, but its cursor is missing or was there before";
      throw new ApiPayError({ kind: "decode", code: "invalid_response", status, requestId, attempts, reason });
    }
    seen.add(cursor);
    query = { ...query, cursor };
  }
}

function written<T>(config: Config, call: Call<T>, options: RequestOptions, key: string | undefined): Request {
  call.path.forEach((part, i) => {
    if (i % 2 === 1 && (typeof part !== "string" || !ID.test(part))) throw refusal("that is not an id");
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(call.query ?? {})) if (value !== undefined) query.set(name, String(value));
  const search = query.toString();
  const body = bodyOf(call);
  const headers: Record<string, string> = {
    accept: "application/json, application/problem+json",
    "user-agent": USER_AGENT,
    ...checkedHeaders(options.headers ?? {}),
    "accept-encoding": "identity",
    authorization: config.authorization(),
  };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key !== undefined) headers["idempotency-key"] = key;
  const url = `${config.baseURL}/v1/${call.path.join("/")}${search === "" ? "" : `?${search}`}`;
  return { method: call.method, url, headers, body };
}

function bodyOf<T>(call: Call<T>): Uint8Array | undefined {
  const members = Object.values(call.body ?? {}).filter((value) => value !== undefined);
  if (members.length === 0) return call.atLeastBraces ? new TextEncoder().encode("{}") : undefined;
  let text: string;
  try {
    // A number that is no safe integer was rounded before it came here: amounts are exact.
    text = JSON.stringify(call.body, (_, value: unknown) => {
      if (typeof value === "number" && !Number.isSafeInteger(value)) throw new TypeError();
      return value;
    });
  } catch {
    throw refusal("the parameters cannot be written as JSON: numbers must be safe integers");
  }
  return new TextEncoder().encode(text);
}

const isSuccess = (answer: Answer): boolean => answer.status !== undefined && answer.status >= 200 && answer.status < 300;

/** S11: fetch does not tell whether a connection was made, so no failure without an answer is retried. */
const isRetryable = ({ failure, status }: Answer): boolean =>
  failure === undefined && status !== undefined && (status === 429 || status >= 500);

/** The time before retry n+1 in ms: Retry-After where the policy obeys it, else jitter. */
function waitOf(n: number, facts: Facts, random: () => number): number {
  const obeyed =
    (facts.status === 429 && facts.code === "rate_limited") || (facts.status === 503 && facts.code === "gateway_unavailable");
  if (obeyed && facts.retryAfter !== undefined) return Math.min(facts.retryAfter, MAX_WAIT_SECONDS) * 1000;
  return backoff(n, random());
}

async function slept(config: Config, wait: number, signal: AbortSignal | undefined): Promise<void> {
  const quiet = signal ?? new AbortController().signal;
  try {
    await config.sleeper(wait, quiet);
  } catch (error) {
    if (!quiet.aborted) throw error; // the sleeper's own failure
  }
}

/** The default sleeper. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });
}

function interruption(signal: AbortSignal | undefined, ends: number): "canceled" | "timeout" | undefined {
  if (signal?.aborted) return abortKind(signal);
  return performance.now() >= ends ? "timeout" : undefined;
}

/** What is known of the last answer stays in it. */
const interrupted = (by: "canceled" | "timeout", last: Facts): ApiPayError => new ApiPayError({ ...last, kind: by, code: by });

const FAILURE_CODES: Partial<Record<ErrorKind, string>> = { timeout: "timeout", canceled: "canceled" };

function factsOf(answer: Answer, now: number): Facts {
  const facts: Facts = { kind: "api", code: "unknown", status: answer.status, requestId: answer.requestId, attempts: 0 };
  if (answer.failure !== undefined) {
    return { ...facts, kind: answer.failure, code: FAILURE_CODES[answer.failure] ?? "connection_error", cause: answer.cause };
  }
  const problem = problemOf(answer.body);
  return {
    ...facts,
    body: answer.body,
    problem,
    code: typeof problem?.code === "string" && problem.code !== "" ? problem.code : "unknown",
    retryAfter: retryAfterSeconds(answer.retryAfter, now),
    retryAfterHeader: answer.retryAfter ?? undefined,
  };
}

function problemOf(body: Uint8Array): Problem | undefined {
  try {
    const value = parseJSON(body);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Problem) : undefined;
  } catch {
    return undefined;
  }
}

function result<T>(call: Call<T>, answer: Answer, options: RequestOptions, key: string | undefined, attempts: number): T {
  const status = answer.status as number;
  const value = call.shape === undefined ? (undefined as T) : decoded(call.shape, answer, key, attempts);
  options.onResponse?.({ status, requestId: answer.requestId, idempotencyKey: key, replayed: answer.replayed === true, attempts });
  return value;
}

function decoded<T>(shape: Shape<T>, answer: Answer, idempotencyKey: string | undefined, attempts: number): T {
  let reason = "the answer is larger than 16 MiB";
  if (!answer.truncated) {
    try {
      return shape(parseJSON(answer.body));
    } catch {
      // JSON.parse's errors quote the answer.
      reason = "the answer's body is not the JSON that is due";
    }
  }
  const { status, requestId } = answer;
  const body = answer.body.slice(0, 1 << 20);
  throw new ApiPayError({ kind: "decode", code: "invalid_response", status, requestId, body, idempotencyKey, attempts, reason });
}
