<?php

declare(strict_types=1);

namespace ApiPay;

/** The codes of ApiPayException::$errorCode: those of the API's catalog, and the SDK's own. Expect others too. */
final class ErrorCode
{
    public const INVALID_REQUEST = 'invalid_request';
    public const PARAMETER_MISSING = 'parameter_missing';
    public const PARAMETER_UNKNOWN = 'parameter_unknown';
    public const IDEMPOTENCY_KEY_REQUIRED = 'idempotency_key_required';
    public const IDEMPOTENCY_KEY_INVALID = 'idempotency_key_invalid';
    public const CURSOR_INVALID = 'cursor_invalid';
    public const AUTHENTICATION_FAILED = 'authentication_failed';
    public const CARD_DECLINED = 'card_declined';
    public const INSUFFICIENT_SCOPE = 'insufficient_scope';
    public const NOT_FOUND = 'not_found';
    public const METHOD_NOT_ALLOWED = 'method_not_allowed';
    public const INVALID_STATE = 'invalid_state';
    public const IDEMPOTENCY_IN_PROGRESS = 'idempotency_in_progress';
    public const MERCHANT_REFERENCE_IN_USE = 'merchant_reference_in_use';
    public const DELIVERY_PENDING = 'delivery_pending';
    public const DELIVERY_IN_FLIGHT = 'delivery_in_flight';
    public const DELIVERY_DELIVERED = 'delivery_delivered';
    public const ENDPOINT_DISABLED = 'endpoint_disabled';
    public const ENDPOINT_DELETED = 'endpoint_deleted';
    public const PAYLOAD_TOO_LARGE = 'payload_too_large';
    public const UNSUPPORTED_MEDIA_TYPE = 'unsupported_media_type';
    public const PARAMETER_INVALID = 'parameter_invalid';
    public const AMOUNT_TOO_SMALL = 'amount_too_small';
    public const AMOUNT_TOO_LARGE = 'amount_too_large';
    public const CURRENCY_INVALID = 'currency_invalid';
    public const REFUND_EXCEEDS_REMAINING = 'refund_exceeds_remaining';
    public const IDEMPOTENCY_KEY_REUSED = 'idempotency_key_reused';
    public const RATE_LIMITED = 'rate_limited';
    public const INTERNAL_ERROR = 'internal_error';
    public const GATEWAY_UNAVAILABLE = 'gateway_unavailable';
    public const SERVICE_UNAVAILABLE = 'service_unavailable';

    /** An answer without a usable code. */
    public const UNKNOWN = 'unknown';
    /** No complete answer. */
    public const CONNECTION_ERROR = 'connection_error';
    /** The timeout or the deadline was reached. */
    public const TIMEOUT = 'timeout';
    /** A 2xx, a page or an event that cannot be read. */
    public const INVALID_RESPONSE = 'invalid_response';
    /** Refused before anything was sent. */
    public const INVALID_ARGUMENT = 'invalid_argument';
}
