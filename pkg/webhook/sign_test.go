package webhook

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v82/webhook"
)

const testEventID = "evt_01h455vb4pex5vsknk084sn02q"

// verify is what a merchant does, with the two libraries that know the schemes.
func verify(t *testing.T, secret Secret, body []byte, h http.Header) (own, standard error) {
	t.Helper()
	own = stripe.ValidatePayload(body, h.Get("ApiPay-Signature"), secret.Reveal())
	verifier, err := standardwebhooks.NewWebhook(secret.Reveal())
	require.NoError(t, err)
	return own, verifier.Verify(body, h)
}

func TestSign_VerifiedByOtherLibraries(t *testing.T) {
	t.Parallel()
	active, previous, stranger := NewSecret(), NewSecret(), NewSecret()
	bodies := map[string][]byte{
		"empty":     {},
		"envelope":  []byte(`{"id":"evt_1","data":{"object":{"amount":9007199254740993}}}`),
		"not UTF-8": {0xff, 0x00, '\n', '.', ' '},
		"256 KiB":   []byte(strings.Repeat("x.", 128<<10)),
	}
	for name, body := range bodies {
		for _, secrets := range [][]Secret{{active}, {active, previous}} {
			h := http.Header{}
			Sign(testEventID, time.Now(), body, secrets...).Set(h)
			for _, secret := range secrets {
				own, standard := verify(t, secret, body, h)
				require.NoError(t, own, name)
				require.NoError(t, standard, name)
			}
			own, standard := verify(t, stranger, body, h)
			require.Error(t, own, name)
			require.Error(t, standard, name)
			own, standard = verify(t, active, append([]byte("x"), body...), h)
			require.Error(t, own, name)
			require.Error(t, standard, name)
		}
	}
}

func TestSign_OneByteOrTimeOff(t *testing.T) {
	t.Parallel()
	secret, body := NewSecret(), []byte(`{}`)
	h := http.Header{}
	Sign(testEventID, time.Now().Add(-301*time.Second), body, secret).Set(h)
	own, standard := verify(t, secret, body, h)
	require.ErrorIs(t, own, stripe.ErrTooOld)
	require.ErrorIs(t, standard, standardwebhooks.ErrMessageTooOld)

	Sign(testEventID, time.Now(), body, secret).Set(h)
	h.Set("webhook-id", testEventID+"x")
	_, standard = verify(t, secret, body, h)
	require.Error(t, standard)
}

// The values were computed apart from this code, by Python's hmac module.
func TestSign_KnownAnswer(t *testing.T) {
	t.Parallel()
	active, err := ParseSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	require.NoError(t, err)
	previous, err := ParseSecret("whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=")
	require.NoError(t, err)
	at := time.Unix(1700000000, 999_999_999)

	headers := Sign("evt_1", at, []byte(`{"a":1}`), active, previous)
	require.Equal(t, Headers{
		Signature:         "t=1700000000,v1=7ca151e4fc23256c89e882261933d6af9a8be1f09f32dd687e83b0e34da7e68f,v1=abaf48ce2b15d123dca08d21ae4d9abc81f134e46bc11c1f2396a93bc9476bd9",
		StandardID:        "evt_1",
		StandardTimestamp: strconv.FormatInt(at.Unix(), 10),
		StandardSignature: "v1,hUVxIYXs8Zy9GDiZD1uQbBwXoZGMAB6RVLdZZ3ffmek= v1,F+Zw0oCgq8QtNdlyR61kiHiw4W6Tng1NMCGtzuR0U6c=",
	}, headers)
}

func TestSign_ZeroSecretSignsNothing(t *testing.T) {
	t.Parallel()
	at, secret := time.Unix(1700000000, 0), NewSecret()
	require.Equal(t, Sign("evt_1", at, nil, secret), Sign("evt_1", at, nil, Secret{}, secret, Secret{}))
	require.Equal(t, "t=1700000000", Sign("evt_1", at, nil, Secret{}).Signature)
	require.Empty(t, Sign("evt_1", at, nil).StandardSignature)
}

// A body is hashed where it lies: what signing allocates does not grow with it. Not parallel: it reads the process's
// counter.
func TestSign_AllocatesLittle(t *testing.T) {
	active, previous := NewSecret(), NewSecret()
	measure := func(body []byte) uint64 {
		const runs = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			Sign(testEventID, time.Unix(1700000000, 0), body, active, previous)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / runs
	}
	require.Less(t, measure(make([]byte, 1)), uint64(8<<10))
	require.Less(t, measure(make([]byte, 256<<10)), uint64(8<<10))
}

func BenchmarkSign(b *testing.B) {
	active, previous := NewSecret(), NewSecret()
	at, body := time.Now(), []byte(strings.Repeat("x", 1024))
	b.ReportAllocs()
	for b.Loop() {
		Sign(testEventID, at, body, active, previous)
	}
}
