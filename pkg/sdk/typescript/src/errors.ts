/**
 * At which stage a call failed.
 *
 * - `api`: an answer that is not 2xx; a redirect is one, since none is followed
 * - `connection`: a connection that could not be made, or broke before the answer was complete
 * - `timeout`: the call reached its timeout or its deadline
 * - `canceled`: the call's signal was aborted
 * - `decode`: a 2xx answer, a page or an event that cannot be read
 * - `argument`: the call was refused before anything was sent
 */
export type ErrorKind = "api" | "connection" | "timeout" | "canceled" | "decode" | "argument";

/** The codes of the API's catalogue. Expect codes that are not listed here. */
export type ApiCode =
  | "invalid_request" | "parameter_missing" | "parameter_unknown" | "idempotency_key_required" | "idempotency_key_invalid"
  | "cursor_invalid" | "authentication_failed" | "card_declined" | "insufficient_scope" | "not_found" | "method_not_allowed"
  | "invalid_state" | "idempotency_in_progress" | "merchant_reference_in_use" | "delivery_pending" | "delivery_in_flight"
  | "delivery_delivered" | "endpoint_disabled" | "endpoint_deleted" | "payload_too_large" | "unsupported_media_type"
  | "parameter_invalid" | "amount_too_small" | "amount_too_large" | "currency_invalid" | "refund_exceeds_remaining"
  | "idempotency_key_reused" | "rate_limited" | "internal_error" | "gateway_unavailable" | "service_unavailable";

/** The codes that the SDK adds, for calls without a problem document. */
export type SdkCode = "unknown" | "connection_error" | "timeout" | "canceled" | "invalid_response" | "invalid_argument";

/** Any code: the known ones are offered by editors, others are allowed. */
export type ErrorCode = ApiCode | SdkCode | (string & {});

/** One refused place of a request. */
export interface FieldError {
  code?: string;
  pointer?: string;
  parameter?: string;
  header?: string;
  detail?: string;
  [member: string]: unknown;
}

/** An RFC 9457 problem document, as it came: nothing in it is checked. */
export interface Problem {
  type?: string;
  title?: string;
  /** The body's status; {@link ApiPayError.status} is the HTTP status. */
  status?: number;
  /** A text for people. Never branch on it. */
  detail?: string;
  instance?: string;
  code?: string;
  request_id?: string;
  decline_code?: string;
  /** The id of the intent that a failed create with `confirm` has made. */
  payment_intent?: string;
  retryable?: boolean;
  errors?: FieldError[];
  [member: string]: unknown;
}

/** What is known of a failed call. */
export interface Facts {
  kind: ErrorKind;
  code: ErrorCode;
  status?: number | undefined;
  problem?: Problem | undefined;
  body?: Uint8Array | undefined;
  requestId?: string | undefined;
  idempotencyKey?: string | undefined;
  retryAfter?: number | undefined;
  retryAfterHeader?: string | undefined;
  attempts: number;
  /** Written by the SDK itself. */
  reason?: string | undefined;
  cause?: Error | undefined;
}

const EMPTY = new Uint8Array(0);

/**
 * What every call of the SDK fails with.
 *
 * Its printed forms, JSON included, tell what happened and never what the server or you wrote: no detail, no body, no
 * credentials. {@link ApiPayError.problem} and {@link ApiPayError.body} have those.
 */
export class ApiPayError extends Error {
  // Private, because util.inspect and loggers print properties.
  readonly #facts: Facts;

  /** @internal */
  constructor(facts: Facts) {
    super(summary(facts), facts.cause === undefined ? undefined : { cause: facts.cause });
    this.#facts = facts;
  }

  /** At which stage the call failed. */
  get kind(): ErrorKind {
    return this.#facts.kind;
  }

  /** A stable code. Branch on it. */
  get code(): ErrorCode {
    return this.#facts.code;
  }

  /**
   * The answer's HTTP status; undefined without an answer. A call that was canceled while it waited for a retry has the
   * status and the problem of the answer before the wait.
   */
  get status(): number | undefined {
    return this.#facts.status;
  }

  /** The answer's problem document; undefined if its body is no JSON object. */
  get problem(): Problem | undefined {
    return this.#facts.problem;
  }

  /** The answer's raw body, its first MiB at most. */
  get body(): Uint8Array {
    return this.#facts.body ?? EMPTY;
  }

  /** Names the call in ApiPay's logs: the answer's X-Request-Id. */
  get requestId(): string | undefined {
    return this.#facts.requestId;
  }

  /**
   * The key the POST was, or would have been, sent with. Store it, and call again with it. Calling again with another key
   * may charge twice.
   */
  get idempotencyKey(): string | undefined {
    return this.#facts.idempotencyKey;
  }

  /** What the answer's Retry-After asks for, in whole seconds from when it came; undefined if it is missing or unusable. */
  get retryAfter(): number | undefined {
    return this.#facts.retryAfter;
  }

  /** The Retry-After header's own text. */
  get retryAfterHeader(): string | undefined {
    return this.#facts.retryAfterHeader;
  }

  /** How many attempts were begun. */
  get attempts(): number {
    return this.#facts.attempts;
  }

  /** What the printed form tells, for structured logs. */
  toJSON(): Record<string, unknown> {
    const { kind, code, status, requestId, idempotencyKey, attempts } = this.#facts;
    return { name: this.name, kind, code, status, requestId, idempotencyKey, attempts };
  }
}

/**
 * A payload is not, or not recently, signed with any of the secrets. Answer 400 and do nothing else. Its text is fixed: it
 * never carries what was received.
 */
export class SignatureVerificationError extends Error {}

// On the prototypes, not to be properties that are printed.
for (const [type, name] of [[ApiPayError, "ApiPayError"], [SignatureVerificationError, "SignatureVerificationError"]] as const) {
  Object.defineProperty(type.prototype, "name", { value: name, configurable: true, writable: true });
}

function summary(f: Facts): string {
  let text = `${f.kind} error: ${f.code}`;
  if (f.status !== undefined) text += ` (status ${f.status})`;
  if (f.requestId !== undefined) text += `, request ${f.requestId}`;
  if (f.idempotencyKey !== undefined) text += `, idempotency key ${f.idempotencyKey}`;
  if (f.attempts > 1) text += `, after ${f.attempts} attempts`;
  if (f.reason !== undefined) text += `: ${f.reason}`;
  return text;
}

/** A call that is refused before anything is sent. `reason` must not quote what the caller wrote. */
export function refusal(reason: string): ApiPayError {
  return new ApiPayError({ kind: "argument", code: "invalid_argument", attempts: 0, reason });
}

export function invalidResponse(reason: string): ApiPayError {
  return new ApiPayError({ kind: "decode", code: "invalid_response", attempts: 0, reason });
}
