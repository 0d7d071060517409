// Package images holds the Dockerfiles against what an engine would do with them, on machines that have none: the same
// steps, in a clean folder with exactly the files that the context holds.
package images

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/stretchr/testify/require"
)

// images are what `make images` builds: the program's name and its Dockerfile.
var images = map[string]struct {
	dockerfile string
	ports      []string
}{
	"migrate":            {"migrations/Dockerfile", nil},
	"payment-api":        {"services/payment-api/Dockerfile", []string{"8080", "8082"}},
	"admin-api":          {"services/admin-api/Dockerfile", []string{"8081", "8083"}},
	"outbox-relay":       {"services/outbox-relay/Dockerfile", []string{"8084"}},
	"webhook-dispatcher": {"services/webhook-dispatcher/Dockerfile", []string{"8085"}},
}

const testVersion = "v9.8.7-test"

// caches are the folders of a builder that outlive a build; on this machine they are the developer's own.
var caches = []string{"/go/pkg/mod", "/root/.cache/go-build"}

func (s *stage) run(t *testing.T, c *instructions.RunCommand) {
	t.Helper()
	require.NoError(t, c.Expand(func(word string) (string, error) { return s.env.expand(t, word), nil }))
	for _, mount := range instructions.GetMounts(c) {
		require.Equal(t, instructions.MountTypeCache, mount.Type)
		require.Contains(t, caches, mount.Target)
	}
	line := strings.Join(c.CmdLine, " ")
	require.True(t, c.PrependShell, line)
	require.Empty(t, c.Files, "no here-documents")
	// It runs below root and not in an image of its own, so it may not name a place outside its folder.
	require.NotRegexp(t, regexp.MustCompile(`(^|[\s=])/`), line)
	command := exec.CommandContext(t.Context(), "sh", "-c", line)
	command.Dir = filepath.Join(s.root, s.dir)
	// Nothing of the developer's but where Go is, its caches, and where it fetches modules from.
	for _, name := range []string{"PATH", "HOME", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOMODCACHE", "GOCACHE", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"} {
		if value, ok := os.LookupEnv(name); ok {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	for name, value := range s.env {
		command.Env = append(command.Env, name+"="+value)
	}
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s\n%s", line, out)
	s.ran = append(s.ran, line)
}

func TestImages(t *testing.T) {
	files := contextFiles(t)
	for name, image := range images {
		// One after the other: what one has compiled the next one finds in the cache.
		t.Run(name, func(t *testing.T) {
			d := parse(t, image.dockerfile)
			require.Len(t, d.stages, 2)
			builder, final := d.stages[0], d.stages[1]

			base := values(d.global).expand(t, builder.BaseName)
			require.Regexp(t, `^golang:`+regexp.QuoteMeta(strings.TrimPrefix(runtime.Version(), "go"))+`-\w+$`, base, "the Go that CI tests with builds what is shipped")
			s := &stage{root: t.TempDir(), dir: "/", env: values{}, files: files, sources: repository,
				given: map[string]string{"VERSION": testVersion, "TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH}}
			s.build(t, builder.Commands)
			require.Equal(t, "off", s.env["GOWORK"])
			require.Equal(t, "0", s.env["CGO_ENABLED"])
			require.True(t, slices.ContainsFunc(s.ran, func(line string) bool { return strings.HasPrefix(line, "go mod download") }))

			program := requireFinal(t, d, final, name, image.ports)
			requireProgram(t, filepath.Join(s.root, program), name)
		})
	}
}

// requireFinal holds the final stage against what every image of the hub is, and answers where the builder has the program.
func requireFinal(t *testing.T, d dockerfile, final instructions.Stage, name string, ports []string) (program string) {
	t.Helper()
	require.Equal(t, "gcr.io/distroless/static-debian12:nonroot", values(d.global).expand(t, final.BaseName))
	labels, env, args := map[string]string{}, map[string]string{}, values{"VERSION": testVersion, "REVISION": "abc"}
	var user string
	var exposed, entrypoint []string
	copies := 0
	for _, command := range final.Commands {
		switch c := command.(type) {
		case *instructions.LabelCommand:
			for _, label := range c.Labels {
				labels[label.Key] = args.expand(t, label.Value)
			}
		case *instructions.CopyCommand:
			copies++
			require.Equal(t, "build", c.From)
			require.Equal(t, "/"+name, c.DestPath)
			program = c.SourcePaths[0]
		case *instructions.UserCommand:
			user = c.User
		case *instructions.ExposeCommand:
			exposed = c.Ports
		case *instructions.EntrypointCommand:
			require.False(t, c.PrependShell, "there is no shell")
			entrypoint = c.CmdLine
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				env[pair.Key] = pair.Value
			}
		case *instructions.CmdCommand:
			require.False(t, c.PrependShell, "there is no shell")
			require.Equal(t, "migrate", name)
		case *instructions.ArgCommand:
		default:
			t.Fatalf("%s has no place in a final stage", command.Name())
		}
	}
	require.Equal(t, 1, copies, "one program and nothing else")
	require.Equal(t, "65532:65532", user)
	require.Equal(t, ports, exposed)
	require.Equal(t, []string{"/" + name}, entrypoint)
	for _, label := range []string{"title", "description", "source", "revision", "version", "licenses"} {
		require.NotEmpty(t, labels["org.opencontainers.image."+label], label)
	}
	require.Equal(t, testVersion, labels["org.opencontainers.image.version"])
	for variable, port := range env {
		require.Contains(t, ports, port[strings.LastIndex(port, ":")+1:], variable)
	}
	return program
}

// requireProgram holds the program against what an image without libraries, shell or settings asks for.
func requireProgram(t *testing.T, path, name string) {
	t.Helper()
	file, err := elf.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for _, segment := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "linked statically")
	}
	info, err := buildinfo.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, runtime.Version(), info.GoVersion)
	require.True(t, strings.HasPrefix(info.Main.Path, "apipay.io/hub/"), info.Main.Path)
	require.Greater(t, len(info.Deps), 3, "the modules that an SBOM is made of")
	for _, dependency := range info.Deps {
		require.NotContains(t, dependency.Path, "devstack")
		require.NotContains(t, dependency.Path, "testify")
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	require.Equal(t, "0", settings["CGO_ENABLED"])
	require.Equal(t, "true", settings["-trimpath"])

	version := exec.CommandContext(t.Context(), path, "version")
	version.Env = []string{}
	out, err := version.CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, name+" "+testVersion+" ("+runtime.Version()+")\n", string(out))

	// Without any setting it says in one line what is missing. The image's own environment changes nothing of that.
	bare := exec.CommandContext(t.Context(), path)
	if name == "migrate" {
		bare.Args = append(bare.Args, "up")
	}
	bare.Env = []string{}
	out, err = bare.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 1, exit.ExitCode())
	require.Equal(t, 1, bytes.Count(out, []byte("\n")), strconv.Quote(string(out)))
	require.Contains(t, string(out), "APIPAY_DATABASE_URL is not set")
}

// TestContext holds the allow-list itself: what an engine is sent is the programs' source and nothing else.
func TestContext(t *testing.T) {
	t.Parallel()
	files := contextFiles(t)
	require.Contains(t, files, "migrations/sql/00001_foundation.sql")
	var size int64
	for _, name := range files {
		for _, other := range []string{"_test.go", "node_modules", "testdata", "/.", ".env", ".pem", ".key", "secret.json", "README"} {
			require.NotContains(t, name, other)
		}
		require.Regexp(t, `^(migrations|pkg|proto|services)/`, name)
		info, err := os.Stat(filepath.Join(repository, name))
		require.NoError(t, err)
		size += info.Size()
	}
	require.Less(t, size, int64(8<<20), "bytes of the context")

	matcher := ignoreRules(t)
	for _, name := range []string{
		".git/config", ".dev/secrets.json", ".env", "deploy/secrets/postgres-password", "bin/migrate", "Makefile",
		"services/payment-api/.env", "services/payment-api/internal/app/run_test.go", "pkg/devstack/stack/stack.go", "pkg/sdk/go/client.go",
	} {
		ignored, err := matcher.MatchesOrParentMatches(name)
		require.NoError(t, err)
		require.True(t, ignored, name)
	}
}
