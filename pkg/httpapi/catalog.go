package httpapi

import (
	"iter"
	"net/http"
)

// Code is the stable, machine-readable name of a problem. Clients branch on it.
type Code string

// The codes of both APIs. The catalogue gives each its status and advice.
const (
	CodeInvalidRequest         Code = "invalid_request"
	CodeParameterMissing       Code = "parameter_missing"
	CodeParameterUnknown       Code = "parameter_unknown"
	CodeIdempotencyKeyRequired Code = "idempotency_key_required"
	CodeIdempotencyKeyInvalid  Code = "idempotency_key_invalid"
	CodeCursorInvalid          Code = "cursor_invalid"

	CodeAuthenticationFailed Code = "authentication_failed"
	CodeCardDeclined         Code = "card_declined"
	CodeInsufficientScope    Code = "insufficient_scope"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"

	CodeInvalidState           Code = "invalid_state"
	CodeIdempotencyInProgress  Code = "idempotency_in_progress"
	CodeMerchantReferenceInUse Code = "merchant_reference_in_use"
	CodeDeliveryPending        Code = "delivery_pending"
	CodeDeliveryInFlight       Code = "delivery_in_flight"
	CodeDeliveryDelivered      Code = "delivery_delivered"
	CodeEndpointDisabled       Code = "endpoint_disabled"
	CodeEndpointDeleted        Code = "endpoint_deleted"

	CodePayloadTooLarge      Code = "payload_too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"

	CodeParameterInvalid       Code = "parameter_invalid"
	CodeAmountTooSmall         Code = "amount_too_small"
	CodeAmountTooLarge         Code = "amount_too_large"
	CodeCurrencyInvalid        Code = "currency_invalid"
	CodeRefundExceedsRemaining Code = "refund_exceeds_remaining"
	CodeIdempotencyKeyReused   Code = "idempotency_key_reused"

	CodeRateLimited        Code = "rate_limited"
	CodeInternalError      Code = "internal_error"
	CodeGatewayUnavailable Code = "gateway_unavailable"
	CodeServiceUnavailable Code = "service_unavailable"
)

// KeyAdvice says which Idempotency-Key a client uses when it sends the request
// again.
type KeyAdvice string

// The advice a catalogue entry can give about the next Idempotency-Key.
const (
	// KeySame: the key was not consumed, or its stored answer is the one wanted.
	KeySame KeyAdvice = "same"
	// KeyNew: the stored answer would be replayed, so a new try needs a new key.
	KeyNew KeyAdvice = "new"
	// KeyNone: sending the request again does not help, with any key.
	KeyNone KeyAdvice = "none"
)

// Entry is one problem of the catalogue.
type Entry struct {
	Code   Code
	Status int
	Title  string
	// Meaning is the text of the page that the problem's type points at.
	Meaning string
	// Retryable reports whether the unchanged request may succeed later.
	Retryable bool
	// Key says which Idempotency-Key the next try carries.
	Key KeyAdvice
	// RetryAfter is the Retry-After in seconds that New sets; 0 sets none.
	RetryAfter int
}

// catalog is ordered by status, as the documentation shows it.
var catalog = []Entry{
	{CodeInvalidRequest, http.StatusBadRequest, "Invalid request",
		"The request is not well formed: the JSON cannot be read, a value has the wrong type, or a query parameter is unknown, repeated or unusable. `errors` names the place. Nothing was changed.",
		false, KeySame, 0},
	{CodeParameterMissing, http.StatusBadRequest, "Parameter missing",
		"A required member is absent; `errors` names it. Nothing was changed.", false, KeySame, 0},
	{CodeParameterUnknown, http.StatusBadRequest, "Parameter unknown",
		"The body has a member that this operation does not know; names are case-sensitive. It is refused so that a misspelt member is never ignored. Nothing was changed.",
		false, KeySame, 0},
	{CodeIdempotencyKeyRequired, http.StatusBadRequest, "Idempotency key required",
		"This operation moves money, so it needs an `Idempotency-Key` header. Send a new random key with each new operation, and the same key when you send the operation again.",
		false, KeyNew, 0},
	{CodeIdempotencyKeyInvalid, http.StatusBadRequest, "Idempotency key invalid",
		"`Idempotency-Key` must be sent once and be 1 to 255 visible ASCII characters, bare or as a quoted string.", false, KeyNew, 0},
	{CodeCursorInvalid, http.StatusBadRequest, "Cursor invalid",
		"The cursor was not made by this list with these filters. Start again without a cursor.", false, KeyNone, 0},

	{CodeAuthenticationFailed, http.StatusUnauthorized, "Authentication failed",
		"There is no usable credential in `Authorization: Bearer ...`: it is missing, malformed, unknown, expired or revoked.", false, KeySame, 0},
	{CodeCardDeclined, http.StatusPaymentRequired, "Card declined",
		"The issuer declined the payment; `decline_code` says why where it is known. The intent can be confirmed again with another payment method and a new key.",
		false, KeyNew, 0},
	{CodeInsufficientScope, http.StatusForbidden, "Insufficient scope",
		"The API key is valid but was made without the scope that this operation needs.", false, KeySame, 0},
	{CodeForbidden, http.StatusForbidden, "Forbidden",
		"The role of this token does not allow the operation.", false, KeyNone, 0},
	{CodeNotFound, http.StatusNotFound, "Not found",
		"There is no such route, or no such object for this tenant and mode.", false, KeySame, 0},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, "Method not allowed",
		"The route exists, but not with this method; `Allow` lists the methods it has.", false, KeyNone, 0},

	{CodeInvalidState, http.StatusConflict, "Invalid state",
		"The object's current state does not allow the operation; the problem carries the state. Read the object before you decide.", false, KeyNew, 0},
	{CodeIdempotencyInProgress, http.StatusConflict, "Idempotency in progress",
		"A request with this key is still running. Send the same request with the same key after `Retry-After`.", true, KeySame, 1},
	{CodeMerchantReferenceInUse, http.StatusConflict, "Merchant reference in use",
		"Another payment intent of this tenant and mode has this `merchant_reference`.", false, KeySame, 0},
	{CodeDeliveryPending, http.StatusConflict, "Delivery pending",
		"The delivery is already due and will be sent without help.", false, KeyNone, 0},
	{CodeDeliveryInFlight, http.StatusConflict, "Delivery in flight",
		"The delivery is being sent at this moment. Look at its outcome first.", false, KeyNone, 0},
	{CodeDeliveryDelivered, http.StatusConflict, "Delivery already delivered",
		"The receiver has already confirmed this delivery. Only `force` sends it again.", false, KeyNone, 0},
	{CodeEndpointDisabled, http.StatusConflict, "Endpoint disabled",
		"The webhook endpoint is disabled. Enable it first.", false, KeyNone, 0},
	{CodeEndpointDeleted, http.StatusConflict, "Endpoint deleted",
		"The webhook endpoint was deleted. Nothing can be sent to it any more.", false, KeyNone, 0},

	{CodePayloadTooLarge, http.StatusRequestEntityTooLarge, "Payload too large",
		"The body is larger than the API accepts (64 KiB).", false, KeySame, 0},
	{CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, "Unsupported media type",
		"The body must be sent as `Content-Type: application/json`, in UTF-8 and without a content coding.", false, KeySame, 0},

	{CodeParameterInvalid, http.StatusUnprocessableEntity, "Parameter invalid",
		"A value has the right type but is out of its range or has the wrong form; `errors` names it. Nothing was changed.", false, KeySame, 0},
	{CodeAmountTooSmall, http.StatusUnprocessableEntity, "Amount too small",
		"The amount is below the minimum of its currency.", false, KeySame, 0},
	{CodeAmountTooLarge, http.StatusUnprocessableEntity, "Amount too large",
		"The amount is above 99,999,999 minor units.", false, KeySame, 0},
	{CodeCurrencyInvalid, http.StatusUnprocessableEntity, "Currency invalid",
		"The currency is not an ISO 4217 code that can be charged.", false, KeySame, 0},
	{CodeRefundExceedsRemaining, http.StatusUnprocessableEntity, "Refund exceeds remaining",
		"The refund is larger than what is left of the payment; pending refunds count.", false, KeyNew, 0},
	{CodeIdempotencyKeyReused, http.StatusUnprocessableEntity, "Idempotency key reused",
		"This key was used with another request: another method, path or body. The first request stands unchanged.", false, KeyNew, 0},

	{CodeRateLimited, http.StatusTooManyRequests, "Rate limited",
		"Too many requests of this tenant and mode. Wait for `Retry-After`; the key was not consumed.", true, KeySame, 1},
	{CodeInternalError, http.StatusInternalServerError, "Internal error",
		"Something failed on our side; `request_id` finds it in our logs. Sending the same request with the same key cannot do the work twice.", true, KeySame, 0},
	{CodeGatewayUnavailable, http.StatusServiceUnavailable, "Gateway unavailable",
		"The payment gateway could not be reached, so nothing was charged or refunded. Send the same request with the same key after `Retry-After`.", true, KeySame, 1},
	{CodeServiceUnavailable, http.StatusServiceUnavailable, "Service unavailable",
		"The service cannot answer at the moment. Send the same request with the same key after `Retry-After`.", true, KeySame, 1},
}

var catalogByCode = func() map[Code]*Entry {
	m := make(map[Code]*Entry, len(catalog))
	for i := range catalog {
		m[catalog[i].Code] = &catalog[i]
	}
	return m
}()

// Catalog yields every problem the APIs can answer, ordered by status. The
// error pages and the OpenAPI file are made from it.
func Catalog() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, e := range catalog {
			if !yield(e) {
				return
			}
		}
	}
}

// Lookup returns the catalogue's entry for code.
func Lookup(code Code) (Entry, bool) {
	e, ok := catalogByCode[code]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}
