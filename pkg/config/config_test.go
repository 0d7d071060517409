package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
)

type sample struct {
	DatabaseURL string        `env:"APIPAY_DATABASE_URL,required,notEmpty"`
	Timeout     time.Duration `env:"APIPAY_WEBHOOK_TIMEOUT" envDefault:"10s"`
	Batch       int           `env:"APIPAY_OUTBOX_BATCH" envDefault:"500"`
}

func (s *sample) Validate() error {
	if s.Batch < 1 {
		return errors.New("APIPAY_OUTBOX_BATCH must be at least 1")
	}
	return nil
}

func TestLoad(t *testing.T) {
	t.Parallel()
	secretFile := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(secretFile, []byte("postgres://from-file\n"), 0o600))
	for name, test := range map[string]struct {
		environ []string
		want    sample
		err     string
	}{
		"defaults":        {environ: []string{"APIPAY_DATABASE_URL=x"}, want: sample{"x", 10 * time.Second, 500}},
		"set":             {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_WEBHOOK_TIMEOUT=3s", "HOME=/"}, want: sample{"x", 3 * time.Second, 500}},
		"secret file":     {environ: []string{"APIPAY_DATABASE_URL_FILE=" + secretFile}, want: sample{"postgres://from-file", 10 * time.Second, 500}},
		"other service's": {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_OIDC_ISSUER=y"}, want: sample{"x", 10 * time.Second, 500}},
		"missing":         {err: "APIPAY_DATABASE_URL is not set"},
		"empty":           {environ: []string{"APIPAY_DATABASE_URL="}, err: "APIPAY_DATABASE_URL is empty"},
		"unknown":         {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_OUTBOX_BATCHES=1"}, err: "APIPAY_OUTBOX_BATCHES is not a setting of ApiPay Hub: did you mean APIPAY_OUTBOX_BATCH?"},
		"far off":         {environ: []string{"APIPAY_FROBNICATE=1"}, err: "APIPAY_FROBNICATE is not a setting of ApiPay Hub: remove it, or see the table of the environment in the README"},
		"file of no secret": {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_OUTBOX_BATCH_FILE=/x"},
			err: "APIPAY_OUTBOX_BATCH_FILE is not a setting of ApiPay Hub: remove it, or see the table of the environment in the README"},
		"both":           {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_DATABASE_URL_FILE=" + secretFile}, err: "APIPAY_DATABASE_URL and APIPAY_DATABASE_URL_FILE are both set: keep one"},
		"unusable":       {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_OUTBOX_BATCH=many"}, err: `APIPAY_OUTBOX_BATCH cannot be used: strconv.ParseInt: parsing "many": invalid syntax`},
		"validated":      {environ: []string{"APIPAY_DATABASE_URL=x", "APIPAY_OUTBOX_BATCH=0"}, err: "APIPAY_OUTBOX_BATCH must be at least 1"},
		"file not there": {environ: []string{"APIPAY_DATABASE_URL_FILE=/nonexistent/x"}, err: "reading APIPAY_DATABASE_URL_FILE: open /nonexistent/x: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load[sample](test.environ)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestVariablesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range config.Variables {
		require.False(t, seen[v.Name], v.Name)
		require.NotEmpty(t, v.Services, v.Name)
		require.NotEmpty(t, v.Doc, v.Name)
		seen[v.Name] = true
	}
}

// The README shows the list that the services go by.
func TestReadmeShowsTheList(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, v := range config.Variables {
		require.Contains(t, string(page), "| `"+v.Name+"` |", "run make generate")
		require.Contains(t, string(page), v.Doc, "run make generate")
	}
}
