// Package idempotency owns apipay.idempotency_keys: what a merchant's Idempotency-Key stands for, from the claim
// to the stored answer. A record has two clocks: locked_until, the lease of the request that works on it, and
// expires_at, the life of the answer.
//
// A key is claimed in the transaction that also does the work, so that neither exists without the other. The
// insert waits for another transaction that holds the same key, which is why no such transaction is long.
package idempotency

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/postgres"
)

// Point is how far the request of a key has come; who takes it over goes on from there.
type Point string

// The points.
const (
	// Claimed lasts no longer than the transaction that claims: a key is committed together with its first work.
	Claimed Point = "claimed"
	// Created: the intent exists and no attempt of this key runs.
	Created Point = "created"
	// Attempted: the attempt decides.
	Attempted Point = "attempted"
	// Finished: the answer is stored.
	Finished Point = "finished"
)

// Request is what a key is bound to.
type Request struct {
	Scope       postgres.Scope
	Key         string
	Fingerprint [sha256.Size]byte
	Method      string
	Path        string
	RequestID   string
}

// NewRequest reads the key of an HTTP request that needs one and binds it to the method, the concrete path with its
// ids, and the body, which two texts of the same meaning share.
func NewRequest(r *http.Request, scope postgres.Scope, path string, body []byte) (Request, error) {
	key, err := httpapi.RequireIdempotencyKey(r.Header)
	if err != nil {
		return Request{}, err
	}
	canonical, err := httpapi.Canonical(body)
	if err != nil {
		return Request{}, fmt.Errorf("fingerprinting the request: %w", err)
	}
	hash := sha256.New()
	// Neither a method nor our paths contain a line feed.
	fmt.Fprintf(hash, "%s\n%s\n", r.Method, path)
	hash.Write(canonical)
	return Request{
		Scope:       scope,
		Key:         key,
		Fingerprint: [sha256.Size]byte(hash.Sum(nil)),
		Method:      r.Method,
		Path:        path,
		RequestID:   httpapi.RequestID(r.Context()),
	}, nil
}

// Response is an answer as it is stored and replayed, byte for byte.
type Response struct {
	Status int
	// Header holds Content-Type, and Location where there is one. X-Request-Id is each answer's own.
	Header map[string]string
	Body   []byte
}

// Record is a row of the table.
type Record struct {
	Key             string
	Fingerprint     []byte
	Method          string
	Path            string
	FirstRequestID  string
	RecoveryPoint   Point
	PaymentIntentID *uuid.UUID
	RefundID        *uuid.UUID
	AttemptID       *uuid.UUID
	Owner           *uuid.UUID
	LockedUntil     *time.Time
	ResponseStatus  *int
	ResponseHeaders map[string]string
	ResponseBody    []byte
	ExpiresAt       time.Time
}

// Response is the stored answer of a finished record.
func (r Record) Response() Response {
	return Response{Status: *r.ResponseStatus, Header: r.ResponseHeaders, Body: r.ResponseBody}
}

// IsOf says that the record is of this request: same method, path and body.
func (r Record) IsOf(request Request) bool {
	return string(r.Fingerprint) == string(request.Fingerprint[:])
}

// Check says whether the request may use the record at the time now: it fails with the problem
// idempotency_key_reused for another request, even while the first one runs, and with idempotency_in_progress while
// somebody else holds the lease.
func (r Record) Check(request Request, owner uuid.UUID, now time.Time) error {
	if !r.IsOf(request) {
		return httpapi.New(httpapi.CodeIdempotencyKeyReused,
			"This Idempotency-Key was used with another method, path or body.").
			WithErrors(httpapi.FieldError{Header: httpapi.HeaderIdempotencyKey, Code: httpapi.CodeIdempotencyKeyReused})
	}
	if r.LockedUntil != nil && r.LockedUntil.After(now) && *r.Owner != owner {
		return httpapi.New(httpapi.CodeIdempotencyInProgress, "A request with this Idempotency-Key is still running.")
	}
	return nil
}

// ErrExists says that a claim found the key taken: read what it stands for, in a transaction of its own.
var ErrExists = errors.New("the idempotency key is taken")

// Needs are the privileges that the package's statements take.
func Needs() []postgres.Need {
	return []postgres.Need{{
		Table: "idempotency_keys",
		Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Delete, postgres.Lock},
		Columns: []string{
			"recovery_point", "payment_intent_id", "refund_id", "attempt_id", "owner", "locked_until",
			"response_status", "response_headers", "response_body", "expires_at",
		},
	}}
}
