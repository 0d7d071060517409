package app

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
)

// cursorKey makes the key that signs list cursors from the key set, which all replicas share. It takes the key that is
// listed first: one that a rotation adds comes last and changes nothing here, and once the oldest is taken out, lists that
// are being paged must start again.
func cursorKey(keyset string) ([]byte, error) {
	var set struct {
		Key []struct {
			KeyData struct {
				Value string `json:"value"`
			} `json:"keyData"`
		} `json:"key"`
	}
	// The parser's own error could quote key material.
	if err := json.Unmarshal([]byte(keyset), &set); err != nil || len(set.Key) == 0 {
		return nil, errors.New("APIPAY_SECRETS_KEYSET has no keys")
	}
	material, err := base64.StdEncoding.DecodeString(set.Key[0].KeyData.Value)
	if err != nil || len(material) == 0 {
		return nil, errors.New("APIPAY_SECRETS_KEYSET has an unreadable key")
	}
	return hkdf.Key(sha256.New, material, nil, "apipay payment-api list cursors", sha256.Size)
}
