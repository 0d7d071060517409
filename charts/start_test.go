package charts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"apipay.io/hub/charts/chartset"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/webhook"
)

// Each service's own program starts with what its chart gives it, every setting among it, answers at the ports and paths of the
// chart's probes and of its ServiceMonitor, and drains. Kafka is away, as it may be.
func TestServices_Start(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["full"]})
	for _, service := range chartset.Services {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			template := o.pods()[service]
			container := template.Spec.Containers[0]
			program := build(t, filepath.Join("..", "services", service), "./cmd/"+service)
			secrets := secretFiles(t, testdb.New(t), template)
			process, ports := startService(t, o, template, program, secrets)
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
				address := ports[probe.HTTPGet.Port.StrVal]
				require.NotEmpty(t, address, "a probe at a port that the pod does not name")
				process.requireAnswers(t, "http://"+address+probe.HTTPGet.Path, http.StatusOK)
			}
			require.Contains(t, o.monitors, "apipay-"+service)
			scraped := o.monitors["apipay-"+service].Spec.Endpoints[0]
			metrics := process.requireAnswers(t, "http://"+ports[scraped.Port]+scraped.Path, http.StatusOK)
			require.Contains(t, metrics, "go_goroutines")
			if ports["http"] != "" {
				process.requireAnswers(t, "http://"+ports["http"]+"/no-such-page", http.StatusNotFound)
			}
			process.requireDrains(t)
		})
	}
}

// The job's program does its work with what the chart gives it, three of them at once.
func TestMigrations_Start(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["full"]})
	template := o.pods()["migrate"]
	container := template.Spec.Containers[0]
	program := build(t, "../migrations", "./cmd/migrate")
	db := testdb.Empty(t)
	bootstrap := o.configMaps["apipay-migrations-bootstrap"].Data["bootstrap.sql"]
	_, err := db.Pool(t, db.Super).Exec(t.Context(), bootstrap)
	require.NoError(t, err)
	secrets := secretFiles(t, db, template)
	processes := make([]*process, 3)
	for i := range processes {
		processes[i] = start(t, program, container.Args, o.settings(t, container), secrets)
	}
	for _, process := range processes {
		require.NoError(t, process.wait(t), process.said())
	}
	var tables int
	require.NoError(t, db.Pool(t, db.Owner).QueryRow(t.Context(),
		`SELECT count(*) FROM pg_tables WHERE schemaname = 'apipay' AND tablename = 'outbox_events'`).Scan(&tables))
	require.Equal(t, 1, tables)
}

// The images are made as the charts expect them: that user, that program.
func TestImages(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: map[string]any{}})
	for name, template := range o.pods() {
		file := filepath.Join("..", "services", name, "Dockerfile")
		if name == "migrate" {
			file = "../migrations/Dockerfile"
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), fmt.Sprintf("\nUSER %d:%d\n", *template.Spec.SecurityContext.RunAsUser, *template.Spec.SecurityContext.RunAsGroup))
		require.Contains(t, string(text), `ENTRYPOINT ["/`+name+`"]`)
		for _, port := range template.Spec.Containers[0].Ports {
			require.Regexp(t, `(?m)^EXPOSE .*\b`+strconv.Itoa(int(port.ContainerPort))+`\b`, string(text))
		}
	}
}

func build(t *testing.T, module, main string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(main))
	command := exec.CommandContext(t.Context(), "go", "build", "-o", program, main)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	return program
}

// secretFiles are the files that the pod's volume would hold.
func secretFiles(t *testing.T, db *testdb.DB, template corev1.PodTemplateSpec) string {
	t.Helper()
	keyset, err := webhook.NewKeysetJSON()
	require.NoError(t, err)
	contents := map[string]string{
		"app-url": db.App, "worker-url": db.Worker, "admin-url": db.Admin, "owner-url": db.Owner, "keyset.json": keyset,
		"tokens.json": "[]", "password": "secret", "client-secret": "secret", "url": "http://user:secret@127.0.0.1:1",
	}
	folder := t.TempDir()
	for _, volume := range template.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			for _, item := range source.Secret.Items {
				require.Contains(t, contents, item.Key)
				require.NoError(t, os.WriteFile(filepath.Join(folder, item.Path), []byte(contents[item.Key]), 0o600))
			}
		}
	}
	return folder
}

// startService starts a service with its pod's ports moved to free ones of this machine, by the ports' names. A port that somebody
// else was faster to take is no fault of the service.
func startService(t *testing.T, o objects, template corev1.PodTemplateSpec, program, secrets string) (*process, map[string]string) {
	t.Helper()
	settings := o.settings(t, template.Spec.Containers[0])
	given := maps.Clone(settings)
	for range 5 {
		ports := map[string]string{}
		for name, setting := range map[string]string{"http": "APIPAY_HTTP_ADDR", "ops": "APIPAY_OPS_ADDR"} {
			if given[setting] == "" {
				continue
			}
			number, ok := o.port(template, name)
			require.True(t, ok)
			require.Equal(t, "0.0.0.0:"+strconv.Itoa(int(number)), given[setting])
			ports[name] = freeAddress(t)
			settings[setting] = ports[name]
		}
		p := start(t, program, template.Spec.Containers[0].Args, settings, secrets)
		if !p.lostItsPort(ports["ops"]) {
			return p, ports
		}
	}
	require.Fail(t, "no free ports")
	return nil, nil
}

func (p *process) lostItsPort(address string) bool {
	for {
		select {
		case <-p.ended:
			return strings.Contains(p.said(), "address already in use")
		case <-time.After(20 * time.Millisecond):
			if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				connection.Close()
				return false
			}
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

type process struct {
	command *exec.Cmd
	output  string
	ended   chan struct{}
	err     error
}

func start(t *testing.T, program string, args []string, settings map[string]string, secrets string) *process {
	t.Helper()
	p := &process{command: exec.CommandContext(context.WithoutCancel(t.Context()), program, args...), ended: make(chan struct{})}
	p.command.Dir = t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		p.command.Env = append(p.command.Env, name+"="+strings.ReplaceAll(settings[name], "/etc/apipay/secrets", secrets))
	}
	p.output = filepath.Join(p.command.Dir, "output")
	file, err := os.Create(p.output)
	require.NoError(t, err)
	defer file.Close()
	p.command.Stdout, p.command.Stderr = file, file
	require.NoError(t, p.command.Start())
	go func() { p.err = p.command.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.command.Process.Kill(); <-p.ended })
	return p
}

func (p *process) said() string {
	text, _ := os.ReadFile(p.output)
	return string(text)
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(2 * time.Minute):
		return errors.New("still running after two minutes")
	}
}

// requireAnswers asks until the answer is the wanted one, for as long as the startup probe would.
func (p *process) requireAnswers(t *testing.T, url string, want int) string {
	t.Helper()
	var last string
	client := http.Client{Timeout: 5 * time.Second}
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-p.ended:
			require.Fail(t, "the service ended", "%v\n%s", p.err, p.said())
		default:
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == want {
			return string(body)
		}
		last = response.Status + " " + string(body)
		if response.StatusCode == http.StatusNotFound {
			break
		}
	}
	require.Fail(t, "no such answer", "%s: %s\n%s", url, last, p.said())
	return ""
}

func (p *process) requireDrains(t *testing.T) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, p.command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t), p.said())
	require.Less(t, time.Since(begun), drain)
}
