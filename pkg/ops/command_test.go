package ops

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	listener, err := Listen(t.Context(), "APIPAY_OPS_ADDR", "0.0.0.0:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	health := NewHealth()
	var database error
	health.Ready("postgres", func(context.Context) error { return database })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeOps(ctx, listener, health, prometheus.NewRegistry()) }()

	require.NoError(t, healthcheck(t.Context(), addr), "of the address that it listens on, whatever that binds")
	database = errors.New("no database")
	require.EqualError(t, healthcheck(t.Context(), addr), "not ready: postgres: no database")
	stop()
	require.NoError(t, <-ended)
	require.ErrorContains(t, healthcheck(t.Context(), addr), "connection refused")
	require.ErrorContains(t, healthcheck(t.Context(), ""), "APIPAY_OPS_ADDR")
}

func TestCommand(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), "payment-api", []string{"--version"}, &out))
	require.Regexp(t, `^payment-api dev \(go1\.\d+.*\)\n$`, out.String())
	require.ErrorContains(t, command(t.Context(), "payment-api", []string{"serve"}, &out), `"serve"`)
}
