package charts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/charts/chartset"
	"apipay.io/hub/pkg/config"
)

// onPurpose are the settings to which the charts give another default than the service, with the reason.
var onPurpose = map[string]string{
	"APIPAY_HTTP_ADDR":        "a pod is called from outside itself",
	"APIPAY_OPS_ADDR":         "a pod is probed from outside itself",
	"APIPAY_KAFKA_BROKERS":    "the service has no default",
	"APIPAY_RATE_LIMIT_RPS":   "off by default; the charts limit to 100",
	"APIPAY_RATE_LIMIT_BURST": "off by default; the charts limit to 200",
}

// Every name that a chart gives a service is one that this very service reads, and _FILE is given for secrets only.
func TestSettings_AreKnown(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for service, template := range o.pods() {
			for name := range o.settings(t, template.Spec.Containers[0]) {
				if !strings.HasPrefix(name, "APIPAY_") {
					require.Regexp(t, `^(OTEL_[A-Z0-9_]+|SSL_CERT_DIR)$`, name)
					continue
				}
				if service == "migrate" {
					require.Equal(t, "APIPAY_DATABASE_URL_FILE", name)
					continue
				}
				require.NotEqual(t, "APIPAY_DEV", name)
				variable, fromFile := published(name)
				require.NotNil(t, variable, "%s: pkg/config does not know %s", service, name)
				require.Contains(t, variable.Services, service, name)
				require.Contains(t, reads(t, service), variable.Name, "%s no longer reads it", service)
				require.Equal(t, variable.Secret, fromFile, "%s: a secret comes from a file, and nothing else does", name)
			}
		}
	})
}

// published finds a name on the list, by itself or as the file of a secret.
func published(name string) (variable *config.Variable, fromFile bool) {
	for i := range config.Variables {
		v := &config.Variables[i]
		if v.Name == name {
			return v, false
		}
		if v.Secret && v.Name+"_FILE" == name {
			return v, true
		}
	}
	return nil, false
}

// Everything that a service reads can be set by its chart, but for what only development may do; what it requires is there by
// default.
func TestSettings_AreComplete(t *testing.T) {
	t.Parallel()
	full := examples(t)["full"]
	// What the example has no use for.
	full["global"].(map[string]any)["config"].(map[string]any)["APIPAY_GATEWAY_LIVE"] = "acquirer"
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: full})
	for service, template := range o.pods() {
		given := o.settings(t, template.Spec.Containers[0])
		for _, variable := range config.Variables {
			if !slices.Contains(variable.Services, service) || variable.Name == "APIPAY_DEV" {
				continue
			}
			name := variable.Name
			if variable.Secret {
				name += "_FILE"
			}
			require.Contains(t, given, name, "%s cannot be given %s", service, name)
		}
	}
}

// By default a chart says what the service would do anyway, but for what it says on purpose.
func TestSettings_Defaults(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: map[string]any{}})
	for service, template := range o.pods() {
		for name, value := range o.settings(t, template.Spec.Containers[0]) {
			variable, fromFile := published(name)
			if variable == nil || fromFile || onPurpose[name] != "" || name == "APIPAY_ADMIN_TOKENS_FILE" {
				continue
			}
			require.Equal(t, variable.Default, value, "%s: %s", service, name)
		}
	}
	api := o.settings(t, o.pods()["payment-api"].Spec.Containers[0])
	require.Equal(t, "100", api["APIPAY_RATE_LIMIT_RPS"])
	require.Equal(t, "200", api["APIPAY_RATE_LIMIT_BURST"])
}

// The ports are those of the services' own defaults, as far as the host is not looked at.
func TestSettings_Ports(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: map[string]any{}})
	for _, service := range chartset.Services {
		template := o.pods()[service]
		given := o.settings(t, template.Spec.Containers[0])
		for port, name := range map[string]string{"http": "APIPAY_HTTP_ADDR", "ops": "APIPAY_OPS_ADDR"} {
			initial, ok := reads(t, service)[name]
			require.Equal(t, ok, given[name] != "", "%s: %s", service, name)
			if !ok {
				continue
			}
			host, number, err := net.SplitHostPort(given[name])
			require.NoError(t, err)
			require.Equal(t, "0.0.0.0", host)
			_, own, err := net.SplitHostPort(initial)
			require.NoError(t, err)
			require.Equal(t, own, number, "%s: %s", service, name)
			open, ok := o.port(template, port)
			require.True(t, ok, "%s: %s", service, port)
			require.Equal(t, number, strconv.Itoa(int(open)), "%s: %s", service, name)
		}
	}
}

// Every secret that a container is told to read is mounted, from a key of a Secret that is named and not held.
func TestSecrets(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for service, template := range o.pods() {
			pod := template.Spec
			var mounted []string
			for _, volume := range pod.Volumes {
				if volume.Projected == nil {
					require.NotNil(t, volume.ConfigMap, service)
					continue
				}
				require.EqualValues(t, 0o440, *volume.Projected.DefaultMode, service)
				for _, source := range volume.Projected.Sources {
					require.Len(t, source.Secret.Items, 1, "%s: only the key that it needs", service)
					mounted = append(mounted, "/etc/apipay/secrets/"+source.Secret.Items[0].Path)
				}
			}
			var read []string
			for name, value := range o.settings(t, pod.Containers[0]) {
				if strings.HasSuffix(name, "_FILE") {
					read = append(read, value)
				}
			}
			require.ElementsMatch(t, mounted, read, service)
			require.Equal(t, "/etc/apipay/secrets", pod.Containers[0].VolumeMounts[0].MountPath)
		}
		for _, manifest := range o.manifests {
			require.NotEqual(t, "Secret", manifest.Kind, manifest.Template)
			require.NotRegexp(t, `://[^/\s:@]+:[^/\s@]+@|SharedAccessKey=|whsec_[A-Za-z0-9+/]|apk_(test|live)_|primaryKeyId|BEGIN [A-Z ]*PRIVATE KEY`, string(manifest.YAML))
		}
	})
}

// reads are the settings that a service's own code reads, each with its default there.
func reads(t *testing.T, service string) map[string]string {
	t.Helper()
	found, err := sources()
	require.NoError(t, err)
	require.Contains(t, found[service], "APIPAY_DATABASE_URL")
	return found[service]
}

// sources are the tags `env` and `envDefault` in the source of every service: the config structs are internal to the services, and
// the published list would otherwise be the only witness.
var sources = sync.OnceValues(func() (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, service := range chartset.Services {
		all[service] = map[string]string{}
		embeds, err := readTags(filepath.Join("..", "services", service, "internal"), all[service])
		if err == nil && embeds {
			_, err = readTags(filepath.Join("..", "pkg", "kafkaconn"), all[service])
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
})

// readTags also tells whether kafkaconn.Config is used.
func readTags(folder string, found map[string]string) (kafka bool, err error) {
	err = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				from, ok := node.X.(*ast.Ident)
				kafka = kafka || ok && from.Name == "kafkaconn" && node.Sel.Name == "Config"
			case *ast.Field:
				if node.Tag == nil {
					return true
				}
				tag := reflect.StructTag(strings.Trim(node.Tag.Value, "`"))
				if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" {
					found[name] = tag.Get("envDefault")
				}
			}
			return true
		})
		return nil
	})
	return kafka, err
}

// bootstrap.sql comes with the chart, since a chart cannot reach outside itself.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	original, err := os.ReadFile("../migrations/bootstrap.sql")
	require.NoError(t, err)
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["external-postgres"]})
	require.Contains(t, o.configMaps, "apipay-migrations-bootstrap")
	require.Equal(t, string(original), o.configMaps["apipay-migrations-bootstrap"].Data["bootstrap.sql"],
		"copy migrations/bootstrap.sql to charts/migrations/files")
	require.Equal(t, "pre-install,pre-upgrade", o.configMaps["apipay-migrations-bootstrap"].Annotations["helm.sh/hook"])
}
