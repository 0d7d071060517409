// The API's objects. Times are Unix seconds; amounts are integers in the currency's minor unit. Members that this version of
// the SDK does not know are there too, as they came; an integer among them that a number cannot hold exactly is a bigint.

import { type Shape, list, object, optional } from "./shape.js";
import type { Secret } from "./secret.js";

/** One of the known values, or one of tomorrow. */
export type Open<T extends string> = T | (string & {});

export type PaymentIntentStatus = Open<"requires_payment_method" | "requires_confirmation" | "processing" | "succeeded" | "canceled">;
export type RefundStatus = Open<"pending" | "succeeded" | "failed">;
export type WebhookEndpointStatus = Open<"enabled" | "disabled">;
export type DeliveryStatus = Open<"PENDING" | "RETRYING" | "DELIVERED" | "FAILED">;
export type EventType = Open<
  | "payment_intent.created" | "payment_intent.processing" | "payment_intent.succeeded" | "payment_intent.payment_failed"
  | "payment_intent.canceled" | "refund.created" | "refund.succeeded" | "refund.failed" | "webhook_endpoint.failing"
  | "webhook_endpoint.disabled" | "webhook_endpoint.recovered" | "ping"
>;

/** Why the last attempt failed. */
export interface PaymentError {
  code: string;
  decline_code?: string | null;
  message?: string | null;
  [member: string]: unknown;
}

/** One payment. An amount of 1000 is 10.00 EUR, and 1000 JPY. */
export interface PaymentIntent {
  id: string;
  object: string;
  /** Exact: an answer whose amount a number cannot hold is refused with `invalid_response`. */
  amount: number;
  amount_refunded: number;
  currency: string;
  status: PaymentIntentStatus;
  livemode: boolean;
  created: number;
  description: string | null;
  metadata: Record<string, string>;
  merchant_reference: string | null;
  payment_method: string | null;
  last_payment_error: PaymentError | null;
  latest_attempt: string | null;
  /** Rises by one with each event about the intent: of two events, the one with the higher version is later. */
  version: number;
  [member: string]: unknown;
}

/** Money given back. */
export interface Refund {
  id: string;
  object: string;
  payment_intent: string;
  amount: number;
  currency: string;
  status: RefundStatus;
  failure_reason: string | null;
  reason: string | null;
  metadata: Record<string, string>;
  livemode: boolean;
  created: number;
  version: number;
  [member: string]: unknown;
}

/** An address that events are delivered to. */
export interface WebhookEndpoint {
  id: string;
  object: string;
  url: string;
  enabled_events: string[];
  description: string | null;
  status: WebhookEndpointStatus;
  disabled_reason: string | null;
  livemode: boolean;
  created: number;
  version: number;
  /** There only in the answers of `create` and `rotateSecret`; `secret.reveal()` is the text. */
  secret?: Secret;
  [member: string]: unknown;
}

/** One POST of a delivery. */
export interface DeliveryAttempt {
  number: number;
  trigger: Open<"scheduled" | "manual" | "recovery">;
  outcome: Open<"succeeded" | "failed" | "superseded" | "lost">;
  started_at: number;
  latency_ms: number | null;
  status_code: number | null;
  error_class: string | null;
  response_excerpt: string | null;
  [member: string]: unknown;
}

/** One event on its way to one endpoint. */
export interface WebhookDelivery {
  id: string;
  object: string;
  endpoint_id: string;
  endpoint_url: string;
  event_id: string;
  event_type: EventType;
  status: DeliveryStatus;
  attempt_count: number;
  next_attempt_at: number | null;
  held: string | null;
  delivered_at: number | null;
  failed_at: number | null;
  failure_reason: string | null;
  created_at: number;
  attempts: DeliveryAttempt[];
  [member: string]: unknown;
}

/** A request to send again what failed. */
export interface Recovery {
  id: string;
  object: string;
  endpoint_id: string;
  since: number;
  status: string;
  livemode: boolean;
  created: number;
  [member: string]: unknown;
}

/** A fact that merchants are told. Its id is the same in every delivery: handle each id once. */
export interface Event {
  id: string;
  type: EventType;
  created: number;
  livemode: boolean;
  api_version: string;
  /** The call that caused the event. */
  request: { id: string | null; idempotency_key: string | null; [member: string]: unknown } | null;
  /** The object as it was then; {@link paymentIntentOf} and its like read it. */
  data: { object: Record<string, unknown>; [member: string]: unknown };
  [member: string]: unknown;
}

/** One page of a list, newest first. */
export interface Page<T> {
  object: string;
  data: T[];
  has_more: boolean;
  /** The cursor of the next page; null on the last one. */
  next_cursor: string | null;
  [member: string]: unknown;
}

const text = optional("string");
const integer = optional("integer");
const flag = optional("boolean");
const metadata = optional("strings");

export const paymentIntentShape: Shape<PaymentIntent> = object({
  id: "string", object: text, amount: integer, amount_refunded: integer, currency: text, status: text, livemode: flag,
  created: integer, description: text, metadata, merchant_reference: text, payment_method: text,
  last_payment_error: optional(object({ code: text, decline_code: text, message: text })), latest_attempt: text, version: integer,
});

export const refundShape: Shape<Refund> = object({
  id: "string", object: text, payment_intent: text, amount: integer, currency: text, status: text, failure_reason: text,
  reason: text, metadata, livemode: flag, created: integer, version: integer,
});

export const webhookEndpointShape: Shape<WebhookEndpoint> = object({
  id: "string", object: text, url: text, enabled_events: optional(list("string")), description: text, status: text,
  disabled_reason: text, livemode: flag, created: integer, version: integer, secret: optional("secret"),
});

export const webhookDeliveryShape: Shape<WebhookDelivery> = object({
  id: "string", object: text, endpoint_id: text, endpoint_url: text, event_id: text, event_type: text, status: text,
  attempt_count: integer, next_attempt_at: integer, held: text, delivered_at: integer, failed_at: integer, failure_reason: text,
  created_at: integer,
  attempts: optional(list(object({
    number: integer, trigger: text, outcome: text, started_at: integer, latency_ms: integer, status_code: integer,
    error_class: text, response_excerpt: text,
  }))),
});

export const recoveryShape: Shape<Recovery> = object({
  id: "string", object: text, endpoint_id: text, since: integer, status: text, livemode: flag, created: integer,
});

export const eventShape: Shape<Event> = object({
  id: "string", type: text, created: integer, livemode: flag, api_version: text,
  request: optional(object({ id: text, idempotency_key: text })), data: optional(object({ object: optional(object({})) })),
});

export const pageShape = <T>(item: Shape<T>): Shape<Page<T>> =>
  object({ object: text, data: list(item), has_more: "boolean", next_cursor: text });
