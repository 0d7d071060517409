package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

var (
	// ErrKeysetInvalid is returned for a key set that cannot be used. The library's own reason is left out on purpose:
	// a parser's message may quote its input, which is key material.
	ErrKeysetInvalid = errors.New("not a Tink JSON key set with AEAD keys and a primary one")
	// ErrSealBroken is returned for a ciphertext that no key of the set opens for its row: the key is gone from the
	// set, or the bytes or the row they belong to were changed.
	ErrSealBroken = errors.New("no key of the key set opens this signing secret")
)

// Keyset encrypts signing secrets at rest. It is safe for concurrent use and prints no key material.
type Keyset struct {
	primary uint32
	aead    tink.AEAD
}

// SecretRef names the row that holds a secret. All four ids are bound to the ciphertext, so that one moved to another
// row, endpoint, mode or tenant does not open.
type SecretRef struct {
	TenantID   uuid.UUID
	Livemode   bool
	EndpointID uuid.UUID
	ID         uuid.UUID
}

// ParseKeyset reads a cleartext Tink JSON key set, the value of APIPAY_SECRETS_KEYSET.
func ParseKeyset(text string) (*Keyset, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	if err != nil {
		return nil, ErrKeysetInvalid
	}
	primary, err := handle.Primary()
	if err != nil {
		return nil, ErrKeysetInvalid
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, ErrKeysetInvalid
	}
	return &Keyset{primary: primary.KeyID(), aead: primitive}, nil
}

// NewKeysetJSON makes a key set with one new AES-256-GCM key, for the local stack and tests. Elsewhere `tinkey` makes it.
func NewKeysetJSON() (string, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return "", fmt.Errorf("making a key set: %w", err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return "", errors.New("writing a key set")
	}
	return text.String(), nil
}

// Seal encrypts secret for the row ref with the primary key, whose id it returns.
func (k *Keyset) Seal(secret Secret, ref SecretRef) (ciphertext []byte, keyID uint32, err error) {
	if secret.IsZero() {
		return nil, 0, ErrSecretInvalid
	}
	ciphertext, err = k.aead.Encrypt((*secret.m).ascii, ref.associatedData())
	if err != nil {
		return nil, 0, fmt.Errorf("sealing the signing secret %s: %w", ref.ID, err)
	}
	return ciphertext, k.primary, nil
}

// Open decrypts what Seal made for the same row, with any key of the set.
func (k *Keyset) Open(ciphertext []byte, ref SecretRef) (Secret, error) {
	text, err := k.aead.Decrypt(ciphertext, ref.associatedData())
	if err != nil {
		return Secret{}, fmt.Errorf("opening the signing secret %s: %w", ref.ID, ErrSealBroken)
	}
	secret, err := ParseSecret(string(text))
	if err != nil {
		return Secret{}, fmt.Errorf("opening the signing secret %s: %w", ref.ID, err)
	}
	return secret, nil
}

// PrimaryKeyID is the id of the key that Seal uses.
func (k *Keyset) PrimaryKeyID() uint32 { return k.primary }

// NeedsReseal says that what the key keyID sealed should be sealed anew, since another key has become the primary one.
func (k *Keyset) NeedsReseal(keyID uint32) bool { return keyID != k.primary }

// Format writes "[redacted]" for every verb.
func (k *Keyset) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue is "[redacted]".
func (k *Keyset) LogValue() slog.Value { return slog.StringValue(redacted) }

func (r SecretRef) associatedData() []byte {
	mode := "test"
	if r.Livemode {
		mode = "live"
	}
	return []byte("webhook_endpoint_secrets/" + r.TenantID.String() + "/" + mode + "/" + r.EndpointID.String() + "/" + r.ID.String())
}
