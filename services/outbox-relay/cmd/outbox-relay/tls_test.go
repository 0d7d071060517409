package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/proto/events"
)

// TestTLS: a broker that demands TLS gets it, verified by the system's roots; one that they do not know gets nothing.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(16, events.Topics()...), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	}))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	tenant, eventID := uuid.New(), uuid.Must(uuid.NewV7())
	const insert = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES ($1, $2, false, $3, $4, 'ping', '{}')`
	_, err = owner.Exec(t.Context(), insert, eventID, tenant, outbox.TopicWebhooks, outbox.Lane(tenant))
	require.NoError(t, err)
	isPublished := func() (published bool) {
		const query = `SELECT published_at IS NOT NULL FROM apipay.outbox_events WHERE id = $1`
		require.NoError(t, owner.QueryRow(t.Context(), query, eventID).Scan(&published))
		return published
	}
	relay := func(env ...string) (ops string) {
		ops = freeAddr(t)
		launch(t, append([]string{"APIPAY_DATABASE_URL=" + db.Worker, "APIPAY_KAFKA_BROKERS=" + cluster.ListenAddrs()[0], "APIPAY_OPS_ADDR=" + ops}, env...)...)
		waitFor(t, "readiness", func() bool { return status(ops, "/readyz") == 200 })
		return ops
	}

	stranger := relay("APIPAY_KAFKA_TLS=true")
	plain := relay()
	for _, ops := range []string{stranger, plain} {
		waitFor(t, "word of the broker that cannot be written to", func() bool {
			return blocked.MatchString(body(t, ops, "/metrics"))
		})
	}
	require.False(t, isPublished())
	require.Contains(t, body(t, stranger, "/readyz"), "certificate")

	relay("APIPAY_KAFKA_TLS=true", "SSL_CERT_FILE="+roots)
	waitFor(t, "publication", isPublished)
}

var blocked = regexp.MustCompile(`(?m)^apipay_outbox_blocked(\{.*\})? 1$`)

// selfSigned is a certificate for 127.0.0.1, and a file of roots that vouches for it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
