package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each mutant is the Go SDK with one rule broken; its vector must find it. The unbroken one passes them all.
var mutants = []struct {
	name, file, from, to, vector string
}{
	{"a POST is retried", "call.go", "in.method != http.MethodGet || ", "", "retry/post-503-sent-once"},
	{"net/http may replay an empty POST", "transport.go", "request.Header[name]; ok {", "request.Header[name]; ok && false {", "network/reused-close-cancel-empty"},
	{"net/http may replay a GET", "transport.go", "request.Body = emptyBody{}", "request.Body = nil", "network/reused-close-get"},
	{"the key is not exposed", "call.go", "a.err.IdempotencyKey, a.err.Attempts = o.key, n+1", "a.err.Attempts = n + 1", "network/post-close-after-request"},
	{"no jitter", "internal/retry/retry.go", "math.Min(random, 1) *", "math.Min(random, 0)*0 + 1*", "backoff/samples-n0"},
	{"Retry-After is not capped", "internal/retry/retry.go", "MaxWait = 60", "MaxWait = 6000", "retry-after/429-3600"},
	{"a wait beyond the deadline is begun", "call.go", "ok && time.Until(deadline) <= wait", "ok && time.Until(deadline) <= 0", "deadlines/deadline-before-wait-ends"},
	{"an empty secret is accepted", "webhook.go", "secret.IsZero() {", "secret.IsZero() && false {", "webhooks/secret-empty"},
	{"upper-case hex is accepted", "webhook.go", "&& value == strings.ToLower(value)", "", "webhooks/upper-case-hex"},
	{"a message quotes the server", "errors.go", `"apipay: %s error: %s", e.Kind, e.Code)`, `"apipay: %s error: %s %s", e.Kind, e.Code, e.Body)`, "redaction/api-error"},
}

func TestBrokenPolicyIsFound(t *testing.T) {
	t.Parallel()
	vectors, err := Load()
	require.NoError(t, err)
	unbroken := build(t, "", "", "")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(vectors, func(v Vector) bool { return v.ID == m.vector })
			require.GreaterOrEqual(t, i, 0, "there is no vector %s", m.vector)
			good := &Runner{Command: []string{unbroken}}
			t.Cleanup(good.Close)
			require.Empty(t, Judge(t.Context(), vectors[i], "go", "", good).Wrong)

			bad := &Runner{Command: []string{build(t, m.file, m.from, m.to)}}
			t.Cleanup(bad.Close)
			require.NotEmpty(t, Judge(t.Context(), vectors[i], "go", "", bad).Wrong)
		})
	}
}

// The command exits with 1 and says so in the table and in the last line.
func TestCommandFailsOnBrokenPolicy(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	command := filepath.Join(root, "conformance")
	output, err := exec.Command("go", "build", "-o", command, "./cmd/conformance").CombinedOutput()
	require.NoError(t, err, "%s", output)
	// The layout that languages.json expects: the SDKs, and three folders above one of them bin/.
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pkg", "sdk", "go"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(root, "bin"), 0o700))
	run := func(runner string) (string, error) {
		require.NoError(t, os.Rename(runner, filepath.Join(root, "bin", "conformance-go")))
		cmd := exec.Command(command, "-sdk", "pkg/sdk", "-only", "go", "-no-build", "-run", "^retry/post-503-sent-once$")
		cmd.Dir = root
		out, err := cmd.Output()
		return string(out), err
	}
	out, err := run(build(t, "", "", ""))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(out, "\ngo 1/1\n"), out)

	out, err = run(build(t, mutants[0].file, mutants[0].from, mutants[0].to))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, out, "FAIL")
	require.True(t, strings.HasSuffix(out, "\ngo 0/1\n"), out)
}

// build makes the Go SDK's runner, with one text of one file replaced.
func build(t *testing.T, file, from, to string) string {
	t.Helper()
	sdk, err := filepath.Abs("../go")
	require.NoError(t, err)
	dir := t.TempDir()
	arguments := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(dir, "runner")}
	if file != "" {
		original := filepath.Join(sdk, file)
		source, err := os.ReadFile(original)
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(source, []byte(from)), "%s must have %q once", file, from)
		mutated := filepath.Join(dir, "mutated.go")
		require.NoError(t, os.WriteFile(mutated, bytes.Replace(source, []byte(from), []byte(to), 1), 0o600))
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
		arguments = append(arguments, "-overlay", filepath.Join(dir, "overlay.json"))
	}
	cmd := exec.Command("go", append(arguments, "./conformance")...)
	cmd.Dir = sdk
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return filepath.Join(dir, "runner")
}
