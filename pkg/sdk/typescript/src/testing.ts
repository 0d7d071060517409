// Helps to test receivers of ApiPay's webhooks.

import { createHmac } from "node:crypto";

/**
 * Makes the value of ApiPay-Signature for `payload`, signed at `timestamp` (Unix seconds, default now) with each secret, as
 * webhook-dispatcher does: during a rotation with the active secret first.
 */
export function sign(payload: Uint8Array | string, secrets: string | readonly string[], timestamp = Date.now() / 1000): string {
  const t = Math.floor(timestamp);
  const list = typeof secrets === "string" ? [secrets] : secrets;
  const signatures = list.map((secret) => `v1=${createHmac("sha256", secret).update(`${t}.`).update(payload).digest("hex")}`);
  return [`t=${t}`, ...signatures].join(",");
}
