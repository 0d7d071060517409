package dispatch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
)

const (
	// resealInterval is also how soon a changed key set file is read.
	resealInterval = 5 * time.Second
	// resealBatch is small: an endpoint whose secret is being rotated waits for one batch at most.
	resealBatch = 100
	resealPace  = 50 * time.Millisecond
	// resealDelay is from the reading of a key set to its first use for sealing: the other replicas read it meanwhile.
	resealDelay = 2 * time.Minute
	// resealRest is how often all secrets are looked through when nothing is left to do.
	resealRest = time.Minute
	// expiredSecretsKept is how long a secret that no longer signs is kept.
	expiredSecretsKept = 24 * time.Hour
)

// keyring is the key set in use. Where it comes from a file, a changed file replaces it; one that cannot be used does not.
type keyring struct {
	path    string
	current atomic.Pointer[webhook.Keyset]
	// What follows belongs to the reseal loop alone.
	text  string
	since time.Time
}

func newKeyring(text, path string) (*keyring, error) {
	keyset, err := webhook.ParseKeyset(text)
	if err != nil {
		return nil, fmt.Errorf("reading APIPAY_SECRETS_KEYSET: %w", err)
	}
	k := &keyring{path: path, text: text, since: time.Now()}
	k.current.Store(keyset)
	return k, nil
}

// reload answers whether there is a new key set.
func (k *keyring) reload() (bool, error) {
	if k.path == "" {
		return false, nil
	}
	content, err := os.ReadFile(k.path) // #nosec G304 -- the operator names the file
	if err != nil {
		return false, fmt.Errorf("reading APIPAY_SECRETS_KEYSET_FILE: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if text == k.text {
		return false, nil
	}
	keyset, err := webhook.ParseKeyset(text)
	if err != nil {
		return false, fmt.Errorf("reading APIPAY_SECRETS_KEYSET_FILE: %w", err)
	}
	k.current.Store(keyset)
	k.text, k.since = text, time.Now()
	return true, nil
}

// resealing is where the walk over all secrets stands; its loop alone uses it.
type resealing struct {
	delay     time.Duration
	after     uuid.UUID
	broken    int
	restUntil time.Time
}

// SKIP LOCKED: dispatchers work side by side, and a rotation of the endpoint's own secret goes before.
const lockStale = `
	SELECT id, tenant_id, livemode, endpoint_id, ciphertext
	FROM apipay.webhook_endpoint_secrets
	WHERE id > $1 AND key_id <> $2
	ORDER BY id
	LIMIT $3
	FOR UPDATE SKIP LOCKED`

const writeResealed = `
	UPDATE apipay.webhook_endpoint_secrets s
	SET ciphertext = r.ciphertext, key_id = $3
	FROM unnest($1::uuid[], $2::bytea[]) AS r (id, ciphertext)
	WHERE s.id = r.id`

type staleSecret struct {
	ID         uuid.UUID
	TenantID   uuid.UUID
	Livemode   bool
	EndpointID uuid.UUID
	Ciphertext []byte
}

func (s staleSecret) ref() webhook.SecretRef {
	return webhook.SecretRef{TenantID: s.TenantID, Livemode: s.Livemode, EndpointID: s.EndpointID, ID: s.ID}
}

// reseal brings every signing secret under the primary key of the key set, so that the key before can be taken out.
func (d *Dispatcher) reseal(ctx context.Context) (time.Duration, error) {
	changed, err := d.keys.reload()
	if err != nil {
		return 0, err
	}
	if changed {
		d.resealing = resealing{delay: d.resealing.delay}
		d.log.InfoContext(ctx, "keyset.loaded", "primary", d.keys.current.Load().PrimaryKeyID())
	}
	now := time.Now()
	if now.Sub(d.keys.since) < d.resealing.delay || now.Before(d.resealing.restUntil) {
		return 0, nil
	}
	keyset := d.keys.current.Load()
	var found int
	var last uuid.UUID
	err = postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		rows, err := tx.Query(ctx, lockStale, d.resealing.after, int64(keyset.PrimaryKeyID()), resealBatch)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByName[staleSecret])
		if err != nil {
			return err
		}
		if found = len(list); found == 0 {
			return nil
		}
		last = list[found-1].ID
		return d.sealAnew(ctx, tx, keyset, list)
	})
	if err != nil {
		return 0, fmt.Errorf("sealing secrets anew: %w", err)
	}
	if found == resealBatch {
		d.resealing.after = last
		return resealPace, nil
	}
	return 0, d.endReseal(ctx, keyset)
}

func (d *Dispatcher) sealAnew(ctx context.Context, tx postgres.Tx, keyset *webhook.Keyset, list []staleSecret) error {
	var ids []uuid.UUID
	var ciphertexts [][]byte
	for _, s := range list {
		secret, err := keyset.Open(s.Ciphertext, s.ref())
		if err != nil {
			// The others go on. Its endpoint's deliveries say so too, each time.
			d.resealing.broken++
			d.log.ErrorContext(ctx, "secret.resealing", "endpoint", id.Format(id.Endpoint, s.EndpointID), "error", err.Error())
			continue
		}
		ciphertext, _, err := keyset.Seal(secret, s.ref())
		if err != nil {
			return err
		}
		ids, ciphertexts = append(ids, s.ID), append(ciphertexts, ciphertext)
	}
	_, err := tx.Exec(ctx, writeResealed, ids, ciphertexts, int64(keyset.PrimaryKeyID()))
	return err
}

const countStale = `SELECT count(*) FROM apipay.webhook_endpoint_secrets WHERE key_id <> $1`

// endReseal ends a walk over all secrets. The number of those left is what says that the old key can go.
func (d *Dispatcher) endReseal(ctx context.Context, keyset *webhook.Keyset) error {
	var left int64
	if err := d.pool.QueryRow(ctx, countStale, int64(keyset.PrimaryKeyID())).Scan(&left); err != nil {
		return fmt.Errorf("counting secrets to be sealed anew: %w", err)
	}
	d.metrics.staleSecrets.Store(left)
	broken := d.resealing.broken
	d.resealing = resealing{delay: d.resealing.delay, restUntil: time.Now().Add(resealRest)}
	if broken > 0 {
		return fmt.Errorf("%d signing secrets open with no key of the key set", broken)
	}
	return nil
}

const deleteExpiredSecrets = `DELETE FROM apipay.webhook_endpoint_secrets WHERE expires_at < now() - $1::interval`
