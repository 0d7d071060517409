package api

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
)

// problemOf is the one place where a domain error gets its status.
func problemOf(err error) *httpapi.Problem {
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, webhook.ErrDeliveryNotFound):
		return notFound()
	case errors.Is(err, webhook.ErrDeliveryPending):
		return httpapi.New(httpapi.CodeDeliveryPending, "The delivery is due already and will be sent without help.")
	case errors.Is(err, webhook.ErrDeliveryInFlight):
		return httpapi.New(httpapi.CodeDeliveryInFlight, "The delivery is being sent right now.")
	case errors.Is(err, webhook.ErrDeliveryDelivered):
		return httpapi.New(httpapi.CodeDeliveryDelivered, "The receiver has confirmed the delivery. Send force: true to send it again.")
	case errors.Is(err, webhook.ErrEndpointDisabled):
		return httpapi.New(httpapi.CodeEndpointDisabled, "The delivery's endpoint is disabled. Enable it first.")
	case errors.Is(err, webhook.ErrEndpointDeleted):
		return httpapi.New(httpapi.CodeEndpointDeleted, "The delivery's endpoint was deleted.")
	case isTimeout(err):
		return httpapi.New(httpapi.CodeServiceUnavailable, "The answer took too long to find; narrow the filter, or try again.")
	case errors.Is(err, postgres.ErrCommitUnknown):
		return httpapi.New(httpapi.CodeServiceUnavailable, "It is not known whether this took effect: read it before you repeat it.")
	case postgres.IsUnavailable(err):
		return httpapi.New(httpapi.CodeServiceUnavailable, "The database cannot be reached at the moment.")
	}
	return nil
}

// isTimeout says whether Postgres gave the statement up: statement_timeout or lock_timeout.
func isTimeout(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "57014" || pgErr.Code == "55P03")
}
