/**
 * ApiPay for TypeScript and JavaScript: payments that cannot be duplicated by a retry.
 *
 * {@link ApiPay} is the client; {@link WebhookVerifier} checks what arrives at a webhook endpoint. Every failed call is an
 * {@link ApiPayError}.
 *
 * @packageDocumentation
 */
export { ApiPay, DEFAULT_BASE_URL } from "./client.js";
export { ApiPayError, SignatureVerificationError } from "./errors.js";
export type { ApiCode, ErrorCode, ErrorKind, FieldError, Problem, SdkCode } from "./errors.js";
export { Events, paymentIntentOf, refundOf, webhookEndpointOf } from "./events.js";
export type { EventListParams } from "./events.js";
export type {
  DeliveryAttempt, DeliveryStatus, Event, EventType, Open, Page, PaymentError, PaymentIntent, PaymentIntentStatus, Recovery,
  Refund, RefundStatus, WebhookDelivery, WebhookEndpoint, WebhookEndpointStatus,
} from "./models.js";
export type { ClientOptions, RequestOptions, ResponseInfo } from "./options.js";
export { PaymentIntents } from "./payment-intents.js";
export type {
  Paging, PaymentIntentConfirmParams, PaymentIntentCreateParams, PaymentIntentListParams, RefundParams,
} from "./payment-intents.js";
export { Refunds } from "./refunds.js";
export { Secret } from "./secret.js";
export { VERSION } from "./version.js";
export { WebhookEndpoints } from "./webhook-endpoints.js";
export type {
  DeliveryListParams, RotateSecretParams, WebhookEndpointCreateParams, WebhookEndpointUpdateParams,
} from "./webhook-endpoints.js";
export { DEFAULT_TOLERANCE, SIGNATURE_HEADER, WebhookVerifier } from "./webhooks.js";
export type { WebhookVerifierOptions } from "./webhooks.js";
