package io.apipay;

/** The codes of {@link ApiPayException#code}: those of the API's catalog, and the SDK's own. Expect others too. */
public final class ErrorCode {
    /** {@code invalid_request}. */
    public static final String INVALID_REQUEST = "invalid_request";
    /** {@code parameter_missing}. */
    public static final String PARAMETER_MISSING = "parameter_missing";
    /** {@code parameter_unknown}. */
    public static final String PARAMETER_UNKNOWN = "parameter_unknown";
    /** {@code idempotency_key_required}. */
    public static final String IDEMPOTENCY_KEY_REQUIRED = "idempotency_key_required";
    /** {@code idempotency_key_invalid}. */
    public static final String IDEMPOTENCY_KEY_INVALID = "idempotency_key_invalid";
    /** {@code cursor_invalid}. */
    public static final String CURSOR_INVALID = "cursor_invalid";
    /** {@code authentication_failed}. */
    public static final String AUTHENTICATION_FAILED = "authentication_failed";
    /** {@code card_declined}. */
    public static final String CARD_DECLINED = "card_declined";
    /** {@code insufficient_scope}. */
    public static final String INSUFFICIENT_SCOPE = "insufficient_scope";
    /** {@code not_found}. */
    public static final String NOT_FOUND = "not_found";
    /** {@code method_not_allowed}. */
    public static final String METHOD_NOT_ALLOWED = "method_not_allowed";
    /** {@code invalid_state}. */
    public static final String INVALID_STATE = "invalid_state";
    /** {@code idempotency_in_progress}. */
    public static final String IDEMPOTENCY_IN_PROGRESS = "idempotency_in_progress";
    /** {@code merchant_reference_in_use}. */
    public static final String MERCHANT_REFERENCE_IN_USE = "merchant_reference_in_use";
    /** {@code delivery_pending}. */
    public static final String DELIVERY_PENDING = "delivery_pending";
    /** {@code delivery_in_flight}. */
    public static final String DELIVERY_IN_FLIGHT = "delivery_in_flight";
    /** {@code delivery_delivered}. */
    public static final String DELIVERY_DELIVERED = "delivery_delivered";
    /** {@code endpoint_disabled}. */
    public static final String ENDPOINT_DISABLED = "endpoint_disabled";
    /** {@code endpoint_deleted}. */
    public static final String ENDPOINT_DELETED = "endpoint_deleted";
    /** {@code payload_too_large}. */
    public static final String PAYLOAD_TOO_LARGE = "payload_too_large";
    /** {@code unsupported_media_type}. */
    public static final String UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type";
    /** {@code parameter_invalid}. */
    public static final String PARAMETER_INVALID = "parameter_invalid";
    /** {@code amount_too_small}. */
    public static final String AMOUNT_TOO_SMALL = "amount_too_small";
    /** {@code amount_too_large}. */
    public static final String AMOUNT_TOO_LARGE = "amount_too_large";
    /** {@code currency_invalid}. */
    public static final String CURRENCY_INVALID = "currency_invalid";
    /** {@code refund_exceeds_remaining}. */
    public static final String REFUND_EXCEEDS_REMAINING = "refund_exceeds_remaining";
    /** {@code idempotency_key_reused}. */
    public static final String IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused";
    /** {@code rate_limited}. */
    public static final String RATE_LIMITED = "rate_limited";
    /** {@code internal_error}. */
    public static final String INTERNAL_ERROR = "internal_error";
    /** {@code gateway_unavailable}. */
    public static final String GATEWAY_UNAVAILABLE = "gateway_unavailable";
    /** {@code service_unavailable}. */
    public static final String SERVICE_UNAVAILABLE = "service_unavailable";

    /** An answer without a usable code. */
    public static final String UNKNOWN = "unknown";
    /** No complete answer. */
    public static final String CONNECTION_ERROR = "connection_error";
    /** The timeout or the deadline was reached. */
    public static final String TIMEOUT = "timeout";
    /** The call was canceled, or its thread interrupted. */
    public static final String CANCELED = "canceled";
    /** A 2xx, a page or an event that cannot be read. */
    public static final String INVALID_RESPONSE = "invalid_response";
    /** Refused before anything was sent. */
    public static final String INVALID_ARGUMENT = "invalid_argument";

    private ErrorCode() {}
}
