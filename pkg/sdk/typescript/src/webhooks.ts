import { createHmac, timingSafeEqual } from "node:crypto";

import { SignatureVerificationError, invalidResponse } from "./errors.js";
import { parseJSON } from "./json.js";
import { type Event, eventShape } from "./models.js";
import { Secret } from "./secret.js";

/** The header that signs a delivery. */
export const SIGNATURE_HEADER = "ApiPay-Signature";

/** How old, or how far ahead, a signature may be, in seconds. */
export const DEFAULT_TOLERANCE = 300;

const MAX_HEADER = 4096;
const MAX_TIMESTAMP_DIGITS = 15;

export interface WebhookVerifierOptions {
  /** In seconds; 0 allows the current second only. Default: 300 */
  tolerance?: number;
  /** Gives Unix milliseconds. */
  clock?: () => number;
}

/** Verifies deliveries. */
export class WebhookVerifier {
  readonly #secrets: Secret[];
  readonly #tolerance: number;
  readonly #clock: () => number;

  /** `secrets`: the endpoint's secret; during a rotation the new one and the old one. None may be empty. */
  constructor(secrets: string | Secret | readonly (string | Secret)[], options: WebhookVerifierOptions = {}) {
    const list = typeof secrets === "string" || secrets instanceof Secret ? [secrets] : secrets;
    this.#secrets = list.map((s) => (s instanceof Secret ? s : new Secret(s)));
    this.#tolerance = options.tolerance ?? DEFAULT_TOLERANCE;
    this.#clock = options.clock ?? Date.now;
  }

  /**
   * Checks that `header`, the value of ApiPay-Signature, signs `payload`: the body's bytes as they were received. Every
   * refusal is a {@link SignatureVerificationError}.
   */
  verify(payload: Uint8Array, header: string | null | undefined): void {
    if (this.#secrets.length === 0) throw new SignatureVerificationError("no secret is configured");
    // The HMAC under an empty key is anybody's.
    if (this.#secrets.some((secret) => typeof secret.reveal() !== "string" || secret.reveal() === "")) {
      throw new SignatureVerificationError("a configured secret is empty");
    }
    if (!(payload instanceof Uint8Array)) throw new SignatureVerificationError("the payload must be the body's bytes");
    const { timestamp, signatures } = parsed(header);
    const digits = timestamp.replace(/^0+/, "");
    const age = Math.floor(this.#clock() / 1000) - Number(digits);
    if (digits.length > MAX_TIMESTAMP_DIGITS || !(Math.abs(age) <= this.#tolerance)) {
      throw new SignatureVerificationError("the timestamp is outside the tolerance");
    }
    let matches = false;
    for (const secret of this.#secrets) {
      // The digits as they were received.
      const wanted = createHmac("sha256", secret.reveal()).update(`${timestamp}.`).update(payload).digest();
      for (const signature of signatures) matches = timingSafeEqual(wanted, signature) || matches;
    }
    if (!matches) throw new SignatureVerificationError("no signature fits");
  }

  /**
   * Verifies, and then reads the event. A payload that is signed but is no event is an ApiPayError with code
   * `invalid_response`.
   */
  constructEvent(payload: Uint8Array, header: string | null | undefined): Event {
    this.verify(payload, header);
    const hasMark = payload[0] === 0xef && payload[1] === 0xbb && payload[2] === 0xbf;
    try {
      return eventShape(parseJSON(hasMark ? payload.subarray(3) : payload));
    } catch {
      throw invalidResponse("the payload is not an event's JSON");
    }
  }
}

/** Reads `t=<digits>,v1=<hex>[,v1=<hex>]`. Unknown elements are ignored, and so is a v1 that is no signature. */
function parsed(header: string | null | undefined): { timestamp: string; signatures: Buffer[] } {
  const malformed = new SignatureVerificationError("the header is malformed");
  if (typeof header !== "string" || Buffer.byteLength(header) > MAX_HEADER) throw malformed;
  let timestamp: string | undefined;
  const signatures: Buffer[] = [];
  for (const element of header.split(",")) {
    const text = element.replace(/^[ \t]+|[ \t]+$/g, "");
    const equals = text.indexOf("=");
    if (equals < 0) throw malformed;
    const [name, value] = [text.slice(0, equals), text.slice(equals + 1)];
    if (name === "t") {
      if (timestamp !== undefined || !/^[0-9]+$/.test(value)) throw malformed;
      timestamp = value;
    } else if (name === "v1" && /^[0-9a-f]{64}$/.test(value)) {
      signatures.push(Buffer.from(value, "hex"));
    }
  }
  if (timestamp === undefined) throw malformed;
  return { timestamp, signatures };
}
