package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/mac"
)

func newKeyset(t *testing.T) (*Keyset, string) {
	t.Helper()
	text, err := NewKeysetJSON()
	require.NoError(t, err)
	keys, err := ParseKeyset(text)
	require.NoError(t, err)
	return keys, text
}

func newSecretRef() SecretRef {
	return SecretRef{TenantID: uuid.New(), Livemode: true, EndpointID: uuid.New(), ID: uuid.New()}
}

// editKeyset does to a key set what an operator does with tinkey.
func editKeyset(t *testing.T, text string, edit func(*keyset.Manager)) string {
	t.Helper()
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	require.NoError(t, err)
	manager := keyset.NewManagerFromHandle(handle)
	edit(manager)
	handle, err = manager.Handle()
	require.NoError(t, err)
	var edited bytes.Buffer
	require.NoError(t, insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&edited)))
	return edited.String()
}

func TestKeyset_SealsAndOpens(t *testing.T) {
	t.Parallel()
	keys, _ := newKeyset(t)
	secret, ref := NewSecret(), newSecretRef()

	first, keyID, err := keys.Seal(secret, ref)
	require.NoError(t, err)
	require.Equal(t, keys.PrimaryKeyID(), keyID)
	require.False(t, keys.NeedsReseal(keyID))
	require.NotContains(t, string(first), secret.Reveal())
	second, _, err := keys.Seal(secret, ref)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "a nonce was used twice")

	opened, err := keys.Open(first, ref)
	require.NoError(t, err)
	require.True(t, opened.Equal(secret))

	_, _, err = keys.Seal(Secret{}, ref)
	require.ErrorIs(t, err, ErrSecretInvalid)
}

func TestKeyset_OpensOnlyForItsRow(t *testing.T) {
	t.Parallel()
	keys, _ := newKeyset(t)
	ref := newSecretRef()
	ciphertext, _, err := keys.Seal(NewSecret(), ref)
	require.NoError(t, err)

	for name, move := range map[string]func(*SecretRef){
		"tenant":   func(r *SecretRef) { r.TenantID = uuid.New() },
		"mode":     func(r *SecretRef) { r.Livemode = !r.Livemode },
		"endpoint": func(r *SecretRef) { r.EndpointID = uuid.New() },
		"row":      func(r *SecretRef) { r.ID = uuid.New() },
		"swapped":  func(r *SecretRef) { r.EndpointID, r.ID = r.ID, r.EndpointID },
	} {
		other := ref
		move(&other)
		_, err := keys.Open(ciphertext, other)
		require.ErrorIs(t, err, ErrSealBroken, name)
	}
	for i := range ciphertext {
		changed := bytes.Clone(ciphertext)
		changed[i] ^= 1
		_, err := keys.Open(changed, ref)
		require.ErrorIs(t, err, ErrSealBroken, "byte %d", i)
	}
	_, err = keys.Open(nil, ref)
	require.ErrorIs(t, err, ErrSealBroken)
}

func TestKeyset_RotatesOnline(t *testing.T) {
	t.Parallel()
	before, text := newKeyset(t)
	secret, ref := NewSecret(), newSecretRef()
	sealedBefore, oldID, err := before.Seal(secret, ref)
	require.NoError(t, err)

	// Step 1: the new key is everywhere before any process seals with it.
	var newID uint32
	withBoth := editKeyset(t, text, func(m *keyset.Manager) {
		newID, err = m.Add(aead.AES256GCMKeyTemplate())
		require.NoError(t, err)
	})
	added, err := ParseKeyset(withBoth)
	require.NoError(t, err)
	require.False(t, added.NeedsReseal(oldID))

	// Step 2: it becomes the primary one; a process still at step 1 reads what is sealed now.
	promoted := editKeyset(t, withBoth, func(m *keyset.Manager) { require.NoError(t, m.SetPrimary(newID)) })
	after, err := ParseKeyset(promoted)
	require.NoError(t, err)
	opened, err := after.Open(sealedBefore, ref)
	require.NoError(t, err)
	require.True(t, opened.Equal(secret))
	require.True(t, after.NeedsReseal(oldID))
	resealed, keyID, err := after.Seal(opened, ref)
	require.NoError(t, err)
	require.Equal(t, newID, keyID)
	require.False(t, after.NeedsReseal(keyID))
	opened, err = added.Open(resealed, ref)
	require.NoError(t, err)
	require.True(t, opened.Equal(secret))

	// Step 3: the old key goes; only what was sealed anew opens.
	retired, err := ParseKeyset(editKeyset(t, promoted, func(m *keyset.Manager) { require.NoError(t, m.Delete(oldID)) }))
	require.NoError(t, err)
	_, err = retired.Open(resealed, ref)
	require.NoError(t, err)
	_, err = retired.Open(sealedBefore, ref)
	require.ErrorIs(t, err, ErrSealBroken)
}

func TestParseKeyset_RefusesWithoutQuoting(t *testing.T) {
	t.Parallel()
	_, valid := newKeyset(t)
	macHandle, err := keyset.NewHandle(mac.HMACSHA256Tag256KeyTemplate())
	require.NoError(t, err)
	var macKeys bytes.Buffer
	require.NoError(t, insecurecleartextkeyset.Write(macHandle, keyset.NewJSONWriter(&macKeys)))

	for name, text := range map[string]string{
		"empty":         "",
		"not JSON":      "marker-" + valid,
		"cut off":       valid[:len(valid)-2],
		"no keys":       `{"primaryKeyId":1,"key":[]}`,
		"no primary":    strings.Replace(valid, "primaryKeyId", "primaryKeyID_", 1),
		"broken key":    strings.Replace(valid, `"value":"`, `"value":"AAAA`, 1),
		"not AEAD keys": macKeys.String(),
	} {
		_, err := ParseKeyset(text)
		require.ErrorIs(t, err, ErrKeysetInvalid, name)
		require.Equal(t, ErrKeysetInvalid.Error(), err.Error(), name)
	}
}

func TestKeyset_ShowsItselfNowhere(t *testing.T) {
	t.Parallel()
	keys, text := newKeyset(t)
	var parsed struct {
		Key []struct{ KeyData struct{ Value string } }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &parsed))
	material := parsed.Key[0].KeyData.Value
	require.NotEmpty(t, material)

	encoded, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	require.NotContains(t, string(encoded), material)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Equal(t, "[redacted]", fmt.Sprintf(verb, keys))
	}
}
