package endpoints

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"apipay.io/hub/services/payment-api/internal/idempotency"
)

// Sealer encrypts stored answers that show a signing secret: the record of an Idempotency-Key lives for days, and a
// secret is never kept in clear text.
type Sealer struct{ aead tink.AEAD }

// NewSealer reads APIPAY_SECRETS_KEYSET. The error never quotes it.
func NewSealer(text string) (*Sealer, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	if err != nil {
		return nil, errors.New("not a Tink JSON key set")
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, errors.New("not a Tink key set of AEAD keys")
	}
	return &Sealer{primitive}, nil
}

func (s *Sealer) seal(body []byte, r idempotency.Request) ([]byte, error) {
	sealed, err := s.aead.Encrypt(body, boundTo(r))
	if err != nil {
		return nil, fmt.Errorf("sealing the answer: %w", err)
	}
	return sealed, nil
}

func (s *Sealer) open(sealed []byte, r idempotency.Request) ([]byte, error) {
	body, err := s.aead.Decrypt(sealed, boundTo(r))
	if err != nil {
		return nil, errors.New("no key of the key set opens the stored answer")
	}
	return body, nil
}

// boundTo is the associated data: a ciphertext that was moved to another key's row does not open.
func boundTo(r idempotency.Request) []byte {
	return fmt.Appendf(nil, "idempotency_keys/%s/%t/%s", r.Scope.TenantID, r.Scope.Livemode, r.Key)
}
