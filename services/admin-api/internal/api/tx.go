package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"apipay.io/hub/pkg/postgres"
)

const (
	// requestTimeout bounds a whole request, however many statements it takes: a database that answers nothing is told
	// once, not once per statement.
	requestTimeout = 5 * time.Second
	// statementTimeout bounds what one filter may cost the database that payments run on. It ends before the request
	// does, so that "too expensive" and "away" are told apart.
	statementTimeout = 4 * time.Second
	// countTimeout bounds counts; one that is not done by then is unknown.
	countTimeout = 2 * time.Second
	// readBackTimeout comes on top, where a commit's answer was lost.
	readBackTimeout = 3 * time.Second
	// refusalTimeout bounds what a refused request waits for its audit entry.
	refusalTimeout = 2 * time.Second
)

// read runs fn in a transaction that sees the tenants of the call's token.
func (a *API) read(c *call, fn func(ctx context.Context, tx postgres.Tx) error) error {
	return a.readWithin(c, statementTimeout, fn)
}

func (a *API) readWithin(c *call, limit time.Duration, fn func(ctx context.Context, tx postgres.Tx) error) error {
	// A plan made once for all values suits none: a filter on a tenant of millions and one on a tenant of none want other indexes.
	const query = `
		SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', $1, true),
		       set_config('plan_cache_mode', 'force_custom_plan', true)`
	ctx := c.ctx()
	return postgres.InSupport(ctx, a.pool, c.who.Scope(), func(tx postgres.Tx) error {
		if _, err := tx.Exec(ctx, query, strconv.FormatInt(limit.Milliseconds(), 10)); err != nil {
			return fmt.Errorf("bounding the transaction: %w", err)
		}
		return fn(ctx, tx)
	})
}

// write runs fn in a transaction that sees the tenants of the call's token; fn ends with the audit entry. A commit
// whose answer was lost is looked up before anybody is told that it failed.
func (a *API) write(c *call, fn func(ctx context.Context, tx postgres.Tx) error) error {
	const settings = `
		SELECT pg_current_xact_id()::text, set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)`
	ctx := c.ctx()
	var transaction string
	err := postgres.InSupport(ctx, a.pool, c.who.Scope(), func(tx postgres.Tx) error {
		var timeout string
		if err := tx.QueryRow(ctx, settings, strconv.FormatInt(statementTimeout.Milliseconds(), 10)).
			Scan(&transaction, &timeout, &timeout); err != nil {
			return fmt.Errorf("bounding the transaction: %w", err)
		}
		return fn(ctx, tx)
	})
	if errors.Is(err, postgres.ErrCommitUnknown) {
		return a.readBack(ctx, transaction, err)
	}
	return err
}

// readBack asks Postgres what became of the transaction.
func (a *API) readBack(ctx context.Context, transaction string, unknown error) error {
	const query = `SELECT pg_xact_status($1::text::xid8)`
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTimeout)
	defer cancel()
	for {
		var status *string
		err := a.pool.QueryRow(ctx, query, transaction).Scan(&status)
		switch {
		case err == nil && status != nil && *status == "committed":
			return nil
		case err == nil && (status == nil || *status == "aborted"):
			return unknown
		}
		select {
		case <-ctx.Done():
			return unknown
		case <-time.After(200 * time.Millisecond):
		}
	}
}
