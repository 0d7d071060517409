package compose

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
)

var repository = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}()

// load reads docker-compose.yml as docker compose does, with nothing of the caller's environment.
func load(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(repository, "docker-compose.yml")},
		cli.WithWorkingDirectory(repository), cli.WithProfiles(profiles), cli.WithResolvedPaths(true))
	require.NoError(t, err)
	project, err := options.LoadProject(context.Background())
	require.NoError(t, err)
	return project
}

var (
	hub           = []string{"payment-api", "admin-api", "outbox-relay", "webhook-dispatcher"}
	observability = []string{"otel-collector", "tempo", "prometheus", "grafana"}
)

func TestServices(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, append([]string{"postgres", "broker", "migrate"}, hub...), load(t).ServiceNames())
	require.ElementsMatch(t, slices.Concat([]string{"postgres", "broker", "migrate"}, hub, observability), load(t, "observability").ServiceNames())
}

// The ports that the local stack has, too; the README names them.
func TestPorts(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"postgres": {"15432:5432"}, "broker": {"19092:19092"}, "migrate": nil,
		"payment-api": {"8080:8080", "8082:8082"}, "admin-api": {"8081:8081", "8083:8083"},
		"outbox-relay": {"8084:8084"}, "webhook-dispatcher": {"8085:8085"},
		"otel-collector": {"4318:4318"}, "tempo": nil, "prometheus": {"9090:9090"}, "grafana": {"3000:3000"},
	}
	for name, service := range load(t, "observability").Services {
		var ports []string
		for _, port := range service.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s: nothing is published beyond this machine", name)
			ports = append(ports, fmt.Sprintf("%s:%d", port.Published, port.Target))
		}
		require.Equal(t, want[name], ports, name)
	}
}

// Every name of the environment is one that this very service reads, and everything that it must have is there.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	project := load(t)
	for _, name := range hub {
		environment := project.Services[name].Environment
		known := map[string]bool{}
		for _, v := range config.Variables {
			if !slices.Contains(v.Services, name) {
				continue
			}
			known[v.Name] = true
			_, plain := environment[v.Name]
			_, file := environment[v.Name+"_FILE"]
			if v.Secret {
				known[v.Name+"_FILE"] = true
				require.False(t, plain, "%s: %s is a secret and comes from a file", name, v.Name)
			}
			if strings.HasSuffix(v.Doc, "required") {
				require.True(t, plain || file, "%s needs %s", name, v.Name)
			}
		}
		for variable := range environment {
			require.True(t, known[variable] || strings.HasPrefix(variable, "OTEL_"), "%s does not read %s", name, variable)
		}
		require.Equal(t, port(t, project.Services[name], "APIPAY_OPS_ADDR"), map[string]uint32{"payment-api": 8082, "admin-api": 8083, "outbox-relay": 8084, "webhook-dispatcher": 8085}[name])
	}
	require.Equal(t, uint32(8080), port(t, project.Services["payment-api"], "APIPAY_HTTP_ADDR"))
	require.Equal(t, uint32(8081), port(t, project.Services["admin-api"], "APIPAY_HTTP_ADDR"))
	require.Equal(t, "true", *project.Services["outbox-relay"].Environment["APIPAY_KAFKA_CREATE_TOPICS"])
	migrate := project.Services["migrate"].Environment
	require.Len(t, migrate, 1)
	require.Contains(t, migrate, "APIPAY_DATABASE_URL_FILE")
}

// port is the one that an address setting names, which must be published.
func port(t *testing.T, service types.ServiceConfig, variable string) uint32 {
	t.Helper()
	value := service.Environment[variable]
	require.NotNil(t, value, variable)
	for _, p := range service.Ports {
		if *value == fmt.Sprintf("0.0.0.0:%d", p.Target) {
			return p.Target
		}
	}
	t.Fatalf("%s: %s=%s is not published", service.Name, variable, *value)
	return 0
}

// Secrets are files: each is made by compose-secrets.sh, given only to who reads it, and no value stands in the file itself.
func TestSecrets(t *testing.T) {
	t.Parallel()
	project := load(t, "observability")
	made := makeSecrets(t)
	for name, secret := range project.Secrets {
		require.Equal(t, filepath.Join(repository, "deploy/secrets"), filepath.Dir(secret.File), name)
		info, err := os.Stat(filepath.Join(made, filepath.Base(secret.File)))
		require.NoError(t, err, name)
		require.NotZero(t, info.Size(), name)
		require.Equal(t, os.FileMode(0o444), info.Mode().Perm()&0o444, "%s must be readable for a container's user", name)
	}
	folder, err := os.Stat(made)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())
	for name, service := range project.Services {
		var given, read []string
		for _, secret := range service.Secrets {
			given = append(given, "/run/secrets/"+secret.Source)
		}
		for variable, value := range service.Environment {
			if value == nil {
				continue
			}
			if strings.HasPrefix(*value, "/run/secrets/") {
				read = append(read, *value)
			}
			if !strings.HasSuffix(variable, "_FILE") {
				require.NotRegexp(t, `(?i)password|secret|token|keyset`, variable, name)
				require.NotContains(t, *value, "postgres://", name)
			}
		}
		if name == "postgres" { // its init script reads the roles' passwords
			require.Subset(t, given, read)
			continue
		}
		require.ElementsMatch(t, given, read, "%s is given the secrets that it reads", name)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	project := load(t, "observability")
	require.Regexp(t, `^postgres:17\.`, project.Services["postgres"].Image)
	require.Regexp(t, `^apache/kafka:4\.`, project.Services["broker"].Image)
	for name, service := range project.Services {
		_, tag, _ := strings.Cut(service.Image, ":")
		require.NotEmpty(t, tag, name)
		require.NotEqual(t, "latest", tag, name)
		if service.Build == nil {
			require.Regexp(t, regexp.MustCompile(`\d+\.\d+`), tag, "%s is pinned", name)
			continue
		}
		require.Equal(t, "apipay/"+name, strings.TrimSuffix(service.Image, ":"+tag))
		require.Equal(t, repository, service.Build.Context)
		require.FileExists(t, filepath.Join(repository, service.Build.Dockerfile))
		require.True(t, service.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, service.CapDrop, name)
		require.Equal(t, "65532:65532", service.User, name)
		require.False(t, service.Privileged, name)
	}
}

// Who needs what: the schema before its users, Kafka before those that cannot work without it; never payment-api.
func TestOrder(t *testing.T) {
	t.Parallel()
	project := load(t)
	require.Equal(t, types.ServiceConditionHealthy, project.Services["migrate"].DependsOn["postgres"].Condition)
	for _, name := range hub {
		service := project.Services[name]
		require.Equal(t, types.ServiceConditionCompletedSuccessfully, service.DependsOn["migrate"].Condition, name)
		broker, waits := service.DependsOn["broker"]
		require.Equal(t, service.Environment["APIPAY_KAFKA_BROKERS"] != nil, waits, name)
		if waits {
			require.Equal(t, types.ServiceConditionHealthy, broker.Condition, name)
		}
		require.Equal(t, types.HealthCheckTest{"CMD", "/" + name, "healthcheck"}, service.HealthCheck.Test, name)
		require.NotNil(t, service.StopGracePeriod, name)
		require.Greater(t, service.StopGracePeriod.String(), "15s", name)
	}
	for _, name := range []string{"postgres", "broker"} {
		require.NotNil(t, project.Services[name].HealthCheck, name)
		require.NotEmpty(t, project.Services[name].Volumes, "%s keeps its data", name)
	}
}

// What is mounted from the repository is there: an engine would make an empty folder of a wrong name.
func TestMounts(t *testing.T) {
	t.Parallel()
	mounted := 0
	for name, service := range load(t, "observability").Services {
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			mounted++
			info, err := os.Stat(volume.Source)
			require.NoError(t, err, name)
			require.True(t, volume.ReadOnly, "%s: %s", name, volume.Source)
			if info.IsDir() {
				entries, err := os.ReadDir(volume.Source)
				require.NoError(t, err)
				require.NotEmpty(t, entries, volume.Source)
			}
		}
	}
	require.Equal(t, 8, mounted)
	info, err := os.Stat(filepath.Join(repository, "deploy/postgres/init.sh"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o111, "the entry point runs it only when it may be executed")
}
