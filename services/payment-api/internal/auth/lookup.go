package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
)

// known is what the database said about a key.
type known struct {
	principal Principal
	usable    bool
	// until is when the answer must be asked for anew.
	until time.Time
}

type cache struct {
	mu   sync.Mutex
	keys *simplelru.LRU[[32]byte, known]
}

func (c *cache) find(hash [32]byte, now time.Time) (known, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok := c.keys.Get(hash)
	if !ok || !now.Before(key.until) {
		return known{}, false
	}
	return key, true
}

func (c *cache) remember(hash [32]byte, key known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys.Add(hash, key)
}

type keyRow struct {
	Scopes     []string
	Usable     bool
	ExpiresIn  *float64
	UseUnnoted bool
}

// lookUp asks the database about a key: first whose it is, by a function that crosses tenants and answers ids only, then
// for the key's row inside that tenant's own transaction.
func (a *Authenticator) lookUp(ctx context.Context, hash [32]byte) (known, error) {
	const find = `SELECT tenant_id, livemode, id FROM apipay.find_api_key($1)`
	var principal Principal
	err := a.pool.QueryRow(ctx, find, hash[:]).Scan(&principal.Scope.TenantID, &principal.Scope.Livemode, &principal.KeyID)
	if errors.Is(err, pgx.ErrNoRows) {
		return known{}, nil
	}
	if err != nil {
		return known{}, fmt.Errorf("finding the API key: %w", err)
	}
	var row keyRow
	var askedAt time.Time
	err = postgres.InTenant(ctx, a.pool, principal.Scope, func(tx postgres.Tx) error {
		// Measured here and not after waiting for a connection: the answer is at least as new as this.
		askedAt = time.Now()
		row, err = readKey(ctx, tx, principal.KeyID)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return known{}, nil
	}
	if err != nil {
		return known{}, fmt.Errorf("reading the API key: %w", err)
	}
	principal.Scopes = row.Scopes
	key := known{principal: principal, usable: row.Usable, until: askedAt.Add(remembered)}
	if row.ExpiresIn != nil {
		key.until = askedAt.Add(min(remembered, time.Duration(*row.ExpiresIn*float64(time.Second))))
	}
	if row.Usable && row.UseUnnoted {
		a.note(principal.Scope, principal.KeyID)
	}
	return key, nil
}

// readKey judges by the database's clock at the moment of the statement, not of the transaction.
func readKey(ctx context.Context, tx postgres.Tx, keyID uuid.UUID) (keyRow, error) {
	const query = `
		SELECT scopes,
		       revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS usable,
		       least(extract(epoch FROM expires_at - clock_timestamp()), 3600)::float8 AS expires_in,
		       last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS use_unnoted
		FROM apipay.api_keys WHERE id = $1`
	rows, err := tx.Query(ctx, query, keyID)
	if err != nil {
		return keyRow{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[keyRow])
}
