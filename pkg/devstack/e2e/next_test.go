package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildNext builds the programs of the release after this one and answers their folder: this source with the migrations of
// testdata/next, a code that needs them, and events that tell one thing more. Nothing of the source is changed for it.
func buildNext(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	edit := func(name string, pairs ...string) {
		content, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		text := string(content)
		for i := 0; i < len(pairs); i += 2 {
			require.Equal(t, 1, strings.Count(text, pairs[i]), "%q in %s", pairs[i], name)
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		target := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		require.NoError(t, os.WriteFile(target, []byte(text), 0o644))
		replace[filepath.Join(repository, name)] = target
	}
	edit("pkg/postgres/check.go", "	SchemaVersion = 1\n", "	SchemaVersion = 2\n", "	CodeVersion = 1\n", "	CodeVersion = 2\n")
	edit("services/payment-api/internal/api/api.gen.go", "type PaymentIntent struct {\n", "type PaymentIntent struct {\n	Channel string `json:\"channel\"`\n")
	edit("services/payment-api/internal/payments/object.go", "		Object: api.PaymentIntentObjectPaymentIntent,\n", "		Object: api.PaymentIntentObjectPaymentIntent, Channel: \"web\",\n")
	files, err := filepath.Glob("testdata/next/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		path, err := filepath.Abs(file)
		require.NoError(t, err)
		added := filepath.Join(repository, "migrations/sql", filepath.Base(file))
		require.NoFileExists(t, added, "the number is taken: give testdata/next later ones")
		replace[added] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, overlay, 0o644))
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", path, "-o", bin+"/", "./migrations/cmd/migrate",
		"./services/payment-api/cmd/payment-api", "./services/admin-api/cmd/admin-api",
		"./services/outbox-relay/cmd/outbox-relay", "./services/webhook-dispatcher/cmd/webhook-dispatcher")
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// refuses starts a service as the stack would and holds its refusal: one line that says so, and a status other than 0.
func (h *hub) refuses(t *testing.T, bin, service, because string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, service))
	command.Env = []string{"APIPAY_OPS_ADDR=127.0.0.1:0", "APIPAY_HTTP_ADDR=127.0.0.1:0"}
	for name, value := range h.Env[strings.ReplaceAll(service, "-", "_")] {
		command.Env = append(command.Env, name+"="+value)
	}
	var out, told bytes.Buffer
	command.Stdout, command.Stderr = &out, &told
	err := command.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s starts", service)
	require.Equal(t, 1, exit.ExitCode())
	lines := strings.Split(strings.TrimSpace(told.String()), "\n")
	require.Len(t, lines, 1, told.String())
	require.Contains(t, lines[0], because)
}
