package dispatch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"apipay.io/hub/pkg/webhook"
)

// rotated is the key set with one more key, which is the primary one, and optionally without the others.
func rotated(t *testing.T, text string, keepOld bool) string {
	t.Helper()
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	require.NoError(t, err)
	old, err := handle.Primary()
	require.NoError(t, err)
	manager := keyset.NewManagerFromHandle(handle)
	keyID, err := manager.Add(aead.AES256GCMKeyTemplate())
	require.NoError(t, err)
	require.NoError(t, manager.SetPrimary(keyID))
	if !keepOld {
		require.NoError(t, manager.Delete(old.KeyID()))
	}
	handle, err = manager.Handle()
	require.NoError(t, err)
	var written strings.Builder
	require.NoError(t, insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&written)))
	return written.String()
}

// without is the key set with its primary key only.
func without(t *testing.T, text string) string {
	t.Helper()
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	require.NoError(t, err)
	primary, err := handle.Primary()
	require.NoError(t, err)
	manager := keyset.NewManagerFromHandle(handle)
	for _, info := range handle.KeysetInfo().GetKeyInfo() {
		if info.GetKeyId() != primary.KeyID() {
			require.NoError(t, manager.Delete(info.GetKeyId()))
		}
	}
	handle, err = manager.Handle()
	require.NoError(t, err)
	var written strings.Builder
	require.NoError(t, insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&written)))
	return written.String()
}

// D8: the key set is rotated under a running dispatcher: the file changes, secrets are sealed anew while deliveries go
// on with the same signatures, and then the old key can be taken out.
func TestReseal_KeySetRotatesOnline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	b.config.SecretsKeysetFile = filepath.Join(t.TempDir(), "keyset.json")
	require.NoError(t, os.WriteFile(b.config.SecretsKeysetFile, []byte(b.config.SecretsKeyset), 0o600))
	endpointID, secret := b.endpoint(rx.URL)
	const others = 2*resealBatch + 7
	for range others {
		b.endpoint("https://receiver.example/", "ping")
	}
	d := b.dispatcher()
	d.resealing.delay = 0
	b.run(d)
	verify := func(event int) {
		b.waitFor(b.publish(d, succeeded), endpointID, "DELIVERED", 1)
		got := rx.got()
		require.Len(t, got, event)
		require.NoError(t, verifyStandard(got[event-1], secret))
	}
	verify(1)
	before := b.secretRows()[0]

	next := rotated(t, b.config.SecretsKeyset, true)
	require.NoError(t, os.WriteFile(b.config.SecretsKeysetFile, []byte("half of"), 0o600))
	verify(2)
	require.NoError(t, os.WriteFile(b.config.SecretsKeysetFile, []byte(next), 0o600))
	parsed, err := webhook.ParseKeyset(next)
	require.NoError(t, err)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.webhook_endpoint_secrets WHERE key_id = $1`, int64(parsed.PrimaryKeyID())) == others+1
	}, "sealed anew")
	verify(3)

	require.NoError(t, os.WriteFile(b.config.SecretsKeysetFile, []byte(without(t, next)), 0o600))
	b.eventually(func() bool { _, err := d.keys.current.Load().Open(before.Ciphertext, before.ref()); return err != nil }, "the old key is out")
	restarted := b.dispatcher()
	restarted.keys, err = newKeyring(without(t, next), "")
	require.NoError(t, err)
	for _, s := range b.secretRows() {
		_, err := restarted.keys.current.Load().Open(s.Ciphertext, s.ref())
		require.NoError(t, err)
	}
	verify(4)
}

// A secret that no key opens is told and left; the others are sealed anew all the same.
func TestReseal_LeavesWhatItCannotOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	foreign := b.keyset
	lost, _ := b.endpoint("https://receiver.example/")
	next := rotated(t, b.config.SecretsKeyset, false)
	b.config.SecretsKeyset = next
	parsed, err := webhook.ParseKeyset(next)
	require.NoError(t, err)
	b.keyset = parsed
	b.endpoint("https://receiver.example/")
	b.keyset = foreign
	d := b.dispatcher()
	_, err = d.reseal(t.Context())
	require.NoError(t, err, "not before the others have read the key set")
	d.resealing.delay = 0
	_, err = d.reseal(t.Context())
	require.ErrorContains(t, err, "1 signing secrets open with no key")
	require.EqualValues(t, 1, d.metrics.staleSecrets.Load())
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_endpoint_secrets WHERE endpoint_id = $1 AND key_id = $2`,
		lost, int64(foreign.PrimaryKeyID())))
	wait, err := d.reseal(t.Context())
	require.NoError(t, err)
	require.Zero(t, wait, "rests")
	require.True(t, d.resealing.restUntil.After(time.Now()))
}

// A secret that has stopped signing is kept for a day and no longer.
func TestRetention_ExpiredSecretsGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("https://receiver.example/")
	for _, age := range []time.Duration{-time.Hour, time.Hour, 25 * time.Hour} {
		expires := time.Now().Add(-age)
		b.addSecret(b.tenant, endpointID, &expires)
	}
	_, err := b.dispatcher().dropOld(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, b.count(`SELECT count(*) FROM apipay.webhook_endpoint_secrets`))
}

func (b *testBundle) secretRows() (list []staleSecret) {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT id, tenant_id, livemode, endpoint_id, ciphertext FROM apipay.webhook_endpoint_secrets`)
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var s staleSecret
		require.NoError(b.t, rows.Scan(&s.ID, &s.TenantID, &s.Livemode, &s.EndpointID, &s.Ciphertext))
		list = append(list, s)
	}
	require.NoError(b.t, rows.Err())
	return list
}
