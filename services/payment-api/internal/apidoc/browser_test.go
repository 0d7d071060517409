//go:build browser

package apidoc_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/payment-api/internal/apidoc"
)

// The public pages, as Chromium shows them. `make docs-check` installs what it needs.
func TestPagesInBrowser(t *testing.T) {
	t.Parallel()
	e := httpapi.NewEcho(httpapi.Options{})
	require.NoError(t, apidoc.Routes(e))
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	folder := os.Getenv("APIPAY_TEST_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	out, err := exec.CommandContext(t.Context(), "node", "browser/look.mjs", server.URL, folder).CombinedOutput()
	require.NoError(t, err, string(out))
}
