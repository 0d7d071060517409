package auth

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/postgres"
)

const noteTimeout = 5 * time.Second

// use is a key that was just used and whose last_used_at is more than a minute old.
type use struct {
	scope postgres.Scope
	keyID uuid.UUID
}

// note hands a use to RunLastUsed. With too many waiting it is dropped: a request never waits for bookkeeping, and the
// key's next look-up notes it again.
func (a *Authenticator) note(scope postgres.Scope, keyID uuid.UUID) {
	select {
	case a.used <- use{scope, keyID}:
	default:
	}
}

// RunLastUsed writes api_keys.last_used_at, at most once a minute per key, until ctx ends.
func (a *Authenticator) RunLastUsed(ctx context.Context) error {
	var lastLine time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u := <-a.used:
			if err := a.writeUse(ctx, u); err != nil && ctx.Err() == nil && time.Since(lastLine) > time.Second {
				slog.WarnContext(ctx, "api_key.noting_use", "error", err.Error())
				lastLine = time.Now()
			}
		}
	}
}

func (a *Authenticator) writeUse(ctx context.Context, u use) error {
	// Replicas note the same use: the guard lets one of them write.
	const query = `
		UPDATE apipay.api_keys SET last_used_at = now()
		WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return postgres.InTenant(ctx, a.pool, u.scope, func(tx postgres.Tx) error {
		_, err := tx.Exec(ctx, query, u.keyID)
		return err
	})
}
