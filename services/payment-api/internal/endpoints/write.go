package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
	"apipay.io/hub/services/payment-api/internal/idempotency"
)

const (
	// sealedMark marks a stored answer whose body is encrypted.
	sealedMark = "sealed"
	// maxRounds bounds how often a request looks again at a key that others are using.
	maxRounds = 3
)

// command changes something in a transaction and answers the object to show.
type command func(ctx context.Context, tx postgres.Tx) (any, error)

// write runs a command in one transaction and answers its object with status, or nothing with 204. A POST with an
// Idempotency-Key happens once: the record with the answer commits together with the work, so there is nothing to take
// over. A refusal stores nothing and frees the key, for each can be mended.
func (e *Endpoints) write(c echo.Context, raw []byte, status int, run command) error {
	scope := auth.FromContext(c).Scope
	request, hasKey, err := keyOf(c, scope, raw)
	if err != nil {
		return err
	}
	for range maxRounds {
		var answer idempotency.Response
		replayed := false
		err := commit(c.Request().Context(), e.Pool, scope, func(ctx context.Context, tx postgres.Tx) (err error) {
			if hasKey {
				if answer, replayed, err = e.stored(ctx, tx, request); replayed || err != nil {
					return err
				}
			}
			if answer, err = execute(ctx, tx, c, status, run); err != nil || !hasKey {
				return err
			}
			return e.store(ctx, tx, request, answer)
		})
		// Another request with this key committed first: everything here was rolled back, and its answer is read.
		if errors.Is(err, idempotency.ErrExists) {
			continue
		}
		if err != nil {
			return err
		}
		return send(c, answer, replayed)
	}
	return httpapi.New(httpapi.CodeIdempotencyInProgress, "Requests with this Idempotency-Key are still running.")
}

func keyOf(c echo.Context, scope postgres.Scope, raw []byte) (idempotency.Request, bool, error) {
	r := c.Request()
	if r.Method != http.MethodPost {
		return idempotency.Request{}, false, nil
	}
	_, present, problem := httpapi.ParseIdempotencyKey(r.Header)
	if problem != nil {
		return idempotency.Request{}, false, problem
	}
	if !present {
		return idempotency.Request{}, false, nil
	}
	request, err := idempotency.NewRequest(r, scope, r.URL.Path, raw)
	return request, true, err
}

func execute(ctx context.Context, tx postgres.Tx, c echo.Context, status int, run command) (idempotency.Response, error) {
	object, err := run(ctx, tx)
	if err != nil || status == http.StatusNoContent {
		return idempotency.Response{Status: status}, err
	}
	body, err := httpapi.EncodeJSON(object)
	if err != nil {
		return idempotency.Response{}, err
	}
	header := map[string]string{echo.HeaderContentType: echo.MIMEApplicationJSON}
	if shown, ok := object.(api.WebhookEndpointWithSecret); ok {
		header[sealedMark] = "true"
		if status == http.StatusCreated {
			header[echo.HeaderLocation] = c.Request().URL.Path + "/" + shown.ID
		}
	}
	return idempotency.Response{Status: status, Header: header, Body: body}, nil
}

func (e *Endpoints) stored(ctx context.Context, tx postgres.Tx, r idempotency.Request) (idempotency.Response, bool, error) {
	record, found, err := idempotency.Read(ctx, tx, r.Scope, r.Key)
	if err != nil || !found {
		return idempotency.Response{}, false, err
	}
	if err := record.Check(r, r.Scope.TenantID, tx.Now); err != nil {
		return idempotency.Response{}, false, err
	}
	answer := record.Response()
	if answer.Header[sealedMark] != "" {
		if answer.Body, err = e.Answers.open(answer.Body, r); err != nil {
			return idempotency.Response{}, false, err
		}
	}
	return answer, true, nil
}

func (e *Endpoints) store(ctx context.Context, tx postgres.Tx, r idempotency.Request, answer idempotency.Response) (err error) {
	if answer.Header[sealedMark] != "" {
		if answer.Body, err = e.Answers.seal(answer.Body, r); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	idempotency.QueueFinished(batch, r, idempotency.Progress{}, answer, e.KeyTTL)
	results := tx.SendBatch(ctx, batch)
	return errors.Join(idempotency.ReadClaim(results), results.Close())
}

func send(c echo.Context, answer idempotency.Response, replayed bool) error {
	h := c.Response().Header()
	if location := answer.Header[echo.HeaderLocation]; location != "" {
		h.Set(echo.HeaderLocation, location)
	}
	if replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	if answer.Status == http.StatusNoContent {
		return c.NoContent(answer.Status)
	}
	return c.Blob(answer.Status, answer.Header[echo.HeaderContentType], answer.Body)
}

// commit is postgres.InTenant for writes that no later step repairs: when the answer to COMMIT was lost, it asks
// Postgres what became of the transaction.
func commit(ctx context.Context, pool *pgxpool.Pool, scope postgres.Scope, fn func(ctx context.Context, tx postgres.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	var transaction string
	err := postgres.InTenant(ctx, pool, scope, func(tx postgres.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT pg_current_xact_id()::text`).Scan(&transaction); err != nil {
			return fmt.Errorf("naming the transaction: %w", err)
		}
		return fn(ctx, tx)
	})
	if !errors.Is(err, postgres.ErrCommitUnknown) {
		return err
	}
	var outcome *string
	const query = `SELECT pg_xact_status($1::text::xid8)`
	if asked := pool.QueryRow(ctx, query, transaction).Scan(&outcome); asked == nil && outcome != nil && *outcome == "committed" {
		return nil
	}
	return err
}

// audit records what the key did, in the same transaction.
func audit(c echo.Context, tx postgres.Tx, action, target string, changes map[string]any) error {
	principal := auth.FromContext(c)
	ctx := c.Request().Context()
	return outbox.Audit(ctx, tx, outbox.AuditEntry{
		TenantID:  principal.Scope.TenantID,
		Livemode:  principal.Scope.Livemode,
		Actor:     principal.Actor(),
		Role:      "merchant",
		Action:    action,
		Target:    target,
		RequestID: httpapi.RequestID(ctx),
		IP:        c.RealIP(),
		Changes:   changes,
	})
}
