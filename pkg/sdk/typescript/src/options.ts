import { refusal } from "./errors.js";
import { VERSION } from "./version.js";

/** Options of a client. */
export interface ClientOptions {
  /** Where ApiPay is reached; a path in it is kept. Default: https://api.apipay.io */
  baseURL?: string;
  /**
   * Limits each attempt, in ms, from connecting to the last byte of the answer. Default: 30,000. Node's fetch has limits of
   * its own that a longer time does not lift: 10 s for connecting, 300 s for the answer's beginning.
   */
  timeoutMs?: number;
  /** How often a GET is repeated at most; 0 for never. A POST is never repeated. Default: 2 */
  maxRetries?: number;
  /** What sends a request; it must send it once, and not follow redirects. Default: the global fetch */
  fetch?: typeof globalThis.fetch;
  /** Gives Unix milliseconds; Retry-After dates are compared with it. */
  clock?: () => number;
  /** Waits so many ms; it ends early, in any way, when the signal is aborted. */
  sleeper?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Gives numbers in [0,1) for jitter. Idempotency keys do not come from it. */
  random?: () => number;
}

/** Options of one call. */
export interface RequestOptions {
  /**
   * The key of a POST: 1 to 255 visible ASCII characters, sent as it is. Without it each call gets a new UUID v4. After an
   * error, call again with `error.idempotencyKey`.
   */
  idempotencyKey?: string | undefined;
  /** Limits each attempt of this call, in place of the client's timeout. */
  timeoutMs?: number | undefined;
  /** Limits the call as a whole, waits included, in ms from now. A wait that would end later is not begun. */
  deadlineMs?: number | undefined;
  /** Cancels the call. It then fails with an ApiPayError of kind `canceled`, or `timeout` after AbortSignal.timeout. */
  signal?: AbortSignal | undefined;
  /** Headers to add. The SDK's own headers cannot be set. */
  headers?: Record<string, string> | undefined;
  /** Is told how a successful call was answered. */
  onResponse?: ((response: ResponseInfo) => void) | undefined;
}

/** What a successful call was answered with, besides the object. */
export interface ResponseInfo {
  /** 201 for what was created, and 202 while an outcome is unknown. */
  status: number;
  requestId: string | undefined;
  idempotencyKey: string | undefined;
  /** The key was known: the answer is that of the first call. */
  replayed: boolean;
  attempts: number;
}

const VISIBLE_ASCII = /^[\x21-\x7e]+$/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/; // RFC 9110 §5.6.2
const FIELD_VALUE = /^[\t\x20-\x7e]*$/;
// The SDK's own. accept-encoding is left out of what may be set because fetch unpacks what it asks for.
const RESERVED = new Set([
  "authorization", "idempotency-key", "host", "content-length", "content-type", "transfer-encoding", "connection", "trailer",
  "expect", "upgrade", "accept-encoding",
]);
const MAX_TIMER_MS = 2 ** 31 - 1; // beyond it, setTimeout fires at once

export function checkedMs(name: string, value: number): number {
  if (typeof value !== "number" || !(value > 0 && value <= MAX_TIMER_MS)) {
    throw refusal(`${name} must be a positive number of milliseconds, at most 2147483647`);
  }
  return value;
}

export function checkedApiKey(key: string): string {
  if (typeof key !== "string" || !VISIBLE_ASCII.test(key)) throw refusal("the API key is empty or has characters that no key has");
  return key;
}

export function checkedBaseURL(text: string): string {
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    // refused below: the text of that error quotes the URL
  }
  const usable =
    url !== undefined && (url.protocol === "https:" || url.protocol === "http:") && VISIBLE_ASCII.test(text) &&
    url.username === "" && url.password === "" && !/[?#]/.test(text);
  if (!usable) throw refusal("the base URL must be http(s)://host[:port][/path]");
  return text.replace(/\/+$/, "");
}

export function checkedRetries(n: number): number {
  if (!Number.isSafeInteger(n) || n < 0) throw refusal("maxRetries must be 0 or more");
  return n;
}

export function checkedKey(key: string): string {
  if (typeof key !== "string" || key.length > 255 || !VISIBLE_ASCII.test(key)) {
    throw refusal("an idempotency key is 1 to 255 visible ASCII characters");
  }
  return key;
}

export function checkedHeaders(headers: Record<string, string>): Record<string, string> {
  const checked: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!TOKEN.test(name)) throw refusal("that is not a header's name");
    if (typeof value !== "string" || !FIELD_VALUE.test(value)) throw refusal("a header's value is ASCII text without a line break");
    const lower = name.toLowerCase();
    if (RESERVED.has(lower)) throw refusal(`the SDK sets ${lower} itself`);
    checked[lower] = value;
  }
  return checked;
}

declare const process: { versions?: { node?: string } } | undefined;
const runtime = typeof process === "undefined" ? "" : ` (Node ${process.versions?.node ?? "unknown"})`;
export const USER_AGENT = `apipay-typescript/${VERSION}${runtime}`;
