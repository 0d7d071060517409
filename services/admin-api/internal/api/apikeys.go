package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
)

const (
	defaultOverlap = 24 * 60 * 60
	maxOverlap     = 7 * 24 * 60 * 60

	keyColumns = `id, tenant_id, livemode, scopes, last4, created_at, expires_at, revoked_at, last_used_at, rolled_to`
)

type keyRow struct {
	ID         uuid.UUID
	TenantID   uuid.UUID
	Livemode   bool
	Scopes     []string
	Last4      string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time
	RolledTo   *uuid.UUID
}

type keyView struct {
	ID         string     `json:"id"`
	Object     string     `json:"object"`
	TenantID   string     `json:"tenant_id"`
	Livemode   bool       `json:"livemode"`
	Scopes     []string   `json:"scopes"`
	Last4      string     `json:"last4"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	RolledTo   *string    `json:"rolled_to"`
	// Secret is the key itself, in the answer that makes it and nowhere else.
	Secret string `json:"secret,omitzero"`
}

func (r keyRow) view() keyView {
	return keyView{
		ID: id.Format(id.APIKey, r.ID), Object: "api_key", TenantID: id.Format(id.Tenant, r.TenantID), Livemode: r.Livemode,
		Scopes: r.Scopes, Last4: r.Last4, CreatedAt: utc(r.CreatedAt), ExpiresAt: utcOrNull(r.ExpiresAt),
		RevokedAt: utcOrNull(r.RevokedAt), LastUsedAt: utcOrNull(r.LastUsedAt), RolledTo: formatOrNull(id.APIKey, r.RolledTo),
	}
}

// tenantOfPath is the tenant that the path names. The platform's reserved one has no keys.
func (c *call) tenantOfPath() (uuid.UUID, error) {
	tenant, err := c.pathID("tenant", id.Tenant)
	if err == nil && tenant == outbox.Platform {
		return uuid.Nil, notFound()
	}
	return tenant, err
}

func requireTenant(ctx context.Context, tx postgres.Tx, tenant uuid.UUID) error {
	const query = `SELECT EXISTS (SELECT FROM apipay.tenants WHERE id = $1)`
	var exists bool
	if err := tx.QueryRow(ctx, query, tenant).Scan(&exists); err != nil {
		return fmt.Errorf("reading the tenant: %w", err)
	}
	if !exists {
		return notFound()
	}
	return nil
}

func (a *API) createKey(c *call) error {
	tenant, err := c.tenantOfPath()
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body createKeyBody
	if _, err := httpapi.Bind(c, &body); err != nil {
		return err
	}
	scopes := apikey.Scopes()
	if body.Scopes.Present() {
		if scopes, err = checkScopes(body.Scopes.Value); err != nil {
			return err
		}
	}
	secret := apikey.New(body.Livemode)
	var made keyRow
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		if err := requireTenant(ctx, tx, tenant); err != nil {
			return err
		}
		expiresAt := body.ExpiresAt.Ptr()
		if err := checkEnd(expiresAt, tx.Now); err != nil {
			return err
		}
		made, err = insertKey(ctx, tx, keyRow{TenantID: tenant, Livemode: body.Livemode, Scopes: scopes, ExpiresAt: expiresAt}, secret)
		if err != nil {
			return err
		}
		entry := c.audit(tenant, made.Livemode, id.Format(id.APIKey, made.ID))
		entry.Changes = map[string]any{"scopes": made.Scopes, "last4": made.Last4, "expires_at": utcOrNull(made.ExpiresAt)}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return answerSecret(c, made, secret)
}

// checkEnd refuses an end that has passed, or that no answer could show.
func checkEnd(expiresAt *time.Time, now time.Time) error {
	if expiresAt != nil && (!expiresAt.After(now) || expiresAt.Year() > 9999) {
		return httpapi.Invalid(httpapi.CodeParameterInvalid, "/expires_at", "A time in the future is due.")
	}
	return nil
}

func answerSecret(c *call, made keyRow, secret apikey.Key) error {
	view := made.view()
	view.Secret = secret.Reveal()
	return httpapi.JSON(c, http.StatusCreated, view)
}

// checkScopes answers the scopes in the order of the catalogue.
func checkScopes(asked []string) ([]string, error) {
	if len(asked) == 0 {
		return nil, httpapi.Invalid(httpapi.CodeParameterInvalid, "/scopes", "A key needs a scope; leave scopes out for all.")
	}
	all := apikey.Scopes()
	for i, scope := range asked {
		pointer := fmt.Sprintf("/scopes/%d", i)
		if !slices.Contains(all, scope) {
			return nil, httpapi.Invalid(httpapi.CodeParameterInvalid, pointer, "There is no such scope.")
		}
		if slices.Contains(asked[:i], scope) {
			return nil, httpapi.Invalid(httpapi.CodeParameterInvalid, pointer, "The scope is named twice.")
		}
	}
	return slices.DeleteFunc(all, func(scope string) bool { return !slices.Contains(asked, scope) }), nil
}

func insertKey(ctx context.Context, tx postgres.Tx, key keyRow, secret apikey.Key) (keyRow, error) {
	const insert = `
		INSERT INTO apipay.api_keys (id, tenant_id, livemode, hash, last4, scopes, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		RETURNING ` + keyColumns
	hash := secret.Hash()
	made, err := one[keyRow](ctx, tx, insert,
		id.NewAt(tx.Now, 0), key.TenantID, key.Livemode, hash[:], secret.Last4(), key.Scopes, key.ExpiresAt)
	if err != nil {
		return made, fmt.Errorf("inserting the key: %w", err)
	}
	return made, nil
}

func (a *API) listKeys(c *call) error {
	const query = `
		SELECT ` + keyColumns + ` FROM apipay.api_keys
		WHERE tenant_id = $1 AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3))
		ORDER BY created_at DESC, id DESC
		LIMIT $4`
	tenant, err := c.tenantOfPath()
	if err != nil {
		return err
	}
	q := httpapi.NewQuery(c.Request())
	limit := q.Limit()
	scope := c.scopeOf("api_keys " + tenant.String())
	after, paging := q.Cursor(a.cursors, scope)
	if err := q.Err(); err != nil {
		return err
	}
	var rows []keyRow
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		if err := requireTenant(ctx, tx, tenant); err != nil {
			return err
		}
		rows, err = collect[keyRow](ctx, tx, query, tenant, afterTime(after, paging), after.ID, limit+1)
		return err
	})
	if err != nil {
		return err
	}
	return answerPage(c, rows, limit, keyRow.view, func(last keyRow) string {
		return a.cursors.Encode(scope, httpapi.Position{Time: last.CreatedAt, ID: last.ID})
	})
}

// keyOfPath is the key that the path names.
func (c *call) keyOfPath() (tenant, key uuid.UUID, err error) {
	if tenant, err = c.tenantOfPath(); err != nil {
		return tenant, key, err
	}
	key, err = c.pathID("key", id.APIKey)
	return tenant, key, err
}

func (a *API) readKey(c *call) error {
	const query = `SELECT ` + keyColumns + ` FROM apipay.api_keys WHERE tenant_id = $1 AND id = $2`
	tenant, keyID, err := c.keyOfPath()
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var key keyRow
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) (err error) {
		key, err = one[keyRow](ctx, tx, query, tenant, keyID)
		return err
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, key.view())
}

const lockKey = `SELECT ` + keyColumns + ` FROM apipay.api_keys WHERE tenant_id = $1 AND id = $2 FOR UPDATE`

// revokeKey may be repeated: a key that is revoked stays so since its first time.
func (a *API) revokeKey(c *call) error {
	const update = `UPDATE apipay.api_keys SET revoked_at = now() WHERE id = $1`
	tenant, keyID, err := c.keyOfPath()
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		key, err := one[keyRow](ctx, tx, lockKey, tenant, keyID)
		if err != nil || key.RevokedAt != nil {
			return err
		}
		if _, err := tx.Exec(ctx, update, keyID); err != nil {
			return fmt.Errorf("revoking the key: %w", err)
		}
		entry := c.audit(tenant, key.Livemode, id.Format(id.APIKey, keyID))
		entry.Changes = map[string]any{"last4": key.Last4, "revoked_at": utc(tx.Now)}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// rollKey makes the next key; the old one works on until the overlap, or its own end, is over. A key with an end has a next
// one with the same end, unless another, or with null none, is asked for: a roll alone makes no key live longer.
func (a *API) rollKey(c *call) error {
	tenant, keyID, err := c.keyOfPath()
	if err != nil {
		return err
	}
	if err := httpapi.RefuseQuery(c.Request()); err != nil {
		return err
	}
	var body rollKeyBody
	if _, err := httpapi.Bind(c, &body, httpapi.AllowEmpty()); err != nil {
		return err
	}
	overlap := body.OverlapSeconds.Or(httpapi.Integer{Value: defaultOverlap})
	if !overlap.In(0, maxOverlap) {
		return httpapi.Invalid(httpapi.CodeParameterInvalid, "/overlap_seconds", "0 to 604800 seconds (7 days) are due.")
	}
	var made keyRow
	var secret apikey.Key
	err = a.write(c, func(ctx context.Context, tx postgres.Tx) error {
		old, err := one[keyRow](ctx, tx, lockKey, tenant, keyID)
		if err != nil {
			return err
		}
		if err := old.mayRoll(tx.Now); err != nil {
			return err
		}
		secret = apikey.New(old.Livemode)
		next := keyRow{TenantID: tenant, Livemode: old.Livemode, Scopes: old.Scopes, ExpiresAt: old.ExpiresAt}
		if body.ExpiresAt.Set {
			next.ExpiresAt = body.ExpiresAt.Ptr()
			if err := checkEnd(next.ExpiresAt, tx.Now); err != nil {
				return err
			}
		}
		if made, err = insertKey(ctx, tx, next, secret); err != nil {
			return err
		}
		expiresAt, err := expireRolled(ctx, tx, old.ID, made.ID, overlap.Value)
		if err != nil {
			return err
		}
		entry := c.audit(tenant, old.Livemode, id.Format(id.APIKey, old.ID))
		entry.Changes = map[string]any{
			"rolled_to": id.Format(id.APIKey, made.ID), "last4": made.Last4, "expires_at": utc(expiresAt),
			"next_expires_at": utcOrNull(made.ExpiresAt),
		}
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		return err
	}
	return answerSecret(c, made, secret)
}

func (r keyRow) mayRoll(now time.Time) error {
	var state string
	switch {
	case r.RevokedAt != nil:
		state = "revoked"
	case r.RolledTo != nil:
		state = "rolled"
	case r.ExpiresAt != nil && !r.ExpiresAt.After(now):
		state = "expired"
	default:
		return nil
	}
	return httpapi.New(httpapi.CodeInvalidState, "The key is "+state+".").With("state", state)
}

func expireRolled(ctx context.Context, tx postgres.Tx, old, next uuid.UUID, overlapSeconds int64) (time.Time, error) {
	// LEAST ignores NULL, so a key without an end gets one and no key lives longer than it would have.
	const update = `
		UPDATE apipay.api_keys
		SET rolled_to = $2, expires_at = LEAST(expires_at, now() + make_interval(secs => $3))
		WHERE id = $1 AND rolled_to IS NULL
		RETURNING expires_at`
	var expiresAt time.Time
	err := tx.QueryRow(ctx, update, old, next, float64(overlapSeconds)).Scan(&expiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return expiresAt, errors.New("the key changed under its lock")
	}
	if err != nil {
		return expiresAt, fmt.Errorf("ending the rolled key: %w", err)
	}
	return expiresAt, nil
}
