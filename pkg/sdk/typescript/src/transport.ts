// Sending a request once.
//
// fetch is told not to follow redirects. What it does on its own accord: after 421 it sends a request again if its body is
// null or has a source that it can rewind (Fetch, "HTTP-network-or-cache fetch"; Node's does so, a POST with an
// Idempotency-Key too). A stream cannot be rewound, so every request but a GET has one, an empty one where there is no
// body; Content-Length is set by hand, for it not to be chunked. A GET cannot have a body and is sent again after 421, which
// says that nothing was done. undici's connections never send again what was written. test/transport.test.mjs and the
// conformance vectors hold that against sockets.

import type { ErrorKind } from "./errors.js";

const MAX_ERROR_BODY = 1 << 20;
const MAX_SUCCESS_BODY = 16 << 20;

export interface Request {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: Uint8Array | undefined;
}

/** What came of a request: an answer, or a failure, which may have begun as an answer. */
export interface Answer {
  status?: number;
  requestId?: string | undefined;
  replayed?: boolean;
  retryAfter: string | null;
  body: Uint8Array;
  /** There was more than may be kept. */
  truncated: boolean;
  failure?: ErrorKind;
  cause?: Error;
}

/** AbortSignal.timeout is a timeout. */
export function abortKind(signal: AbortSignal | undefined): "canceled" | "timeout" {
  return (signal?.reason as { name?: unknown } | undefined)?.name === "TimeoutError" ? "timeout" : "canceled";
}

export async function send(
  fetch: typeof globalThis.fetch, request: Request, timeoutMs: number, signal: AbortSignal | undefined,
): Promise<Answer> {
  const answer: Answer = { retryAfter: null, body: new Uint8Array(0), truncated: false };
  const controller = new AbortController();
  let ended: ErrorKind | undefined;
  const end = (kind: ErrorKind): void => {
    ended ??= kind;
    controller.abort();
  };
  const timer = setTimeout(() => end("timeout"), timeoutMs);
  const onAbort = (): void => end(abortKind(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    const response = await fetch(request.url, init(request, controller.signal));
    answer.status = response.status;
    answer.requestId = response.headers.get("x-request-id") || undefined;
    answer.replayed = response.headers.get("idempotent-replayed")?.toLowerCase() === "true";
    answer.retryAfter = response.headers.get("retry-after");
    await read(response, answer);
  } catch (error) {
    answer.failure = ended ?? (isTimeout(error) ? "timeout" : "connection");
    answer.cause = described(error);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    if (answer.truncated) controller.abort(); // closes the connection
  }
  return answer;
}

function init(request: Request, signal: AbortSignal): RequestInit {
  const options: RequestInit & { duplex?: "half" } = {
    method: request.method, headers: request.headers, redirect: "manual", signal,
  };
  if (request.method === "GET") return options;
  const body = request.body ?? new Uint8Array(0);
  options.headers = { ...request.headers, "content-length": String(body.length) };
  options.body = new ReadableStream<Uint8Array>({
    start(stream) {
      if (body.length > 0) stream.enqueue(body);
      stream.close();
    },
  });
  options.duplex = "half";
  return options;
}

/** Reads the body, up to what may be kept. fetch unpacks a compressed one; the limit is for what it unpacks to. */
async function read(response: Response, answer: Answer): Promise<void> {
  const limit = response.ok ? MAX_SUCCESS_BODY : MAX_ERROR_BODY;
  const chunks: Uint8Array[] = [];
  let length = 0;
  if (response.body === null) return;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value as Uint8Array);
    length += (value as Uint8Array).length;
    if (length > limit) {
      answer.truncated = true;
      reader.cancel().catch(() => {});
      break;
    }
  }
  answer.body = joined(chunks, Math.min(length, limit));
  // undici gives a connection back one turn of the event loop after its answer's end; a call made before opens another one.
  if (!answer.truncated) await new Promise((resolve) => setTimeout(resolve));
}

function joined(chunks: Uint8Array[], length: number): Uint8Array {
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    const part = chunk.subarray(0, length - at);
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The code of the innermost error: ECONNREFUSED, UND_ERR_SOCKET, CERT_HAS_EXPIRED, ... */
function codeOf(error: unknown): string | undefined {
  let code: string | undefined;
  for (let e: unknown = error, depth = 0; typeof e === "object" && e !== null && depth < 8; depth++) {
    const { code: own, cause } = e as { code?: unknown; cause?: unknown };
    if (typeof own === "string" && /^[A-Z0-9_]{1,64}$/.test(own)) code = own;
    e = cause;
  }
  return code;
}

function isTimeout(error: unknown): boolean {
  return /^(UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT|ETIMEDOUT)$/.test(codeOf(error) ?? "");
}

/** fetch's own error may quote what the server wrote, and hold the socket. */
function described(error: unknown): Error {
  return new Error(`fetch failed: ${codeOf(error) ?? "unknown reason"}`);
}
