package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"apipay.io/hub/charts/chartset"
)

// previous are renderings of the last release. KEEP_RELEASE=1 makes them anew, which is done once, when a version is released.
var previous = map[string]string{"defaults": "testdata/previous/defaults.yaml", "production": "testdata/previous/production.yaml"}

// An upgrade from the release before is one that Kubernetes accepts: what cannot be changed is as it was, nothing that others
// refer to is gone under its name, and what is made anew each time may be.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for name, path := range previous {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := examples(t)[name]
			if values == nil {
				values = map[string]any{}
			}
			manifests, _, err := chartset.Render(chartset.Release{Folder: built, Chart: "apipay", Values: values})
			require.NoError(t, err)
			if os.Getenv("KEEP_RELEASE") != "" {
				keep(t, path, manifests)
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			old, err := chartset.Split(path, string(text))
			require.NoError(t, err)
			require.Empty(t, refused(decode(t, old), decode(t, manifests)))
		})
	}
}

func keep(t *testing.T, path string, manifests []chartset.Manifest) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	var text strings.Builder
	for _, manifest := range manifests {
		// Dashboards are long, and nothing in them is immutable.
		if !strings.HasSuffix(manifest.Template, "/dashboards.yaml") {
			text.WriteString("---\n" + strings.TrimSpace(string(manifest.YAML)) + "\n")
		}
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
}

// refused are the reasons for which the API server, or those who use the objects, would not take the new ones over the old ones.
func refused(old, next objects) []string {
	var reasons []string
	now := map[string]runtime.Object{}
	for i, object := range next.decoded {
		now[next.manifests[i].Kind+"/"+next.manifests[i].Name] = object
	}
	for i, before := range old.decoded {
		id := old.manifests[i].Kind + "/" + old.manifests[i].Name
		after := now[id]
		if after == nil {
			reasons = append(reasons, id+" is gone")
			continue
		}
		if deletedFirst(before) && deletedFirst(after) {
			continue
		}
		switch before := before.(type) {
		case *appsv1.Deployment:
			if !equal(before.Spec.Selector, after.(*appsv1.Deployment).Spec.Selector) {
				reasons = append(reasons, id+": the selector is immutable")
			}
		case *batchv1.Job:
			if !equal(before.Spec.Template, after.(*batchv1.Job).Spec.Template) {
				reasons = append(reasons, id+": the template is immutable")
			}
		case *corev1.Service:
			after := after.(*corev1.Service)
			if before.Spec.Type != after.Spec.Type || before.Spec.ClusterIP != after.Spec.ClusterIP {
				reasons = append(reasons, id+": the cluster IP is immutable")
			}
			if !equal(before.Spec.Ports, after.Spec.Ports) {
				reasons = append(reasons, id+": who calls it knows its ports")
			}
		}
	}
	return reasons
}

// deletedFirst are hooks that are deleted before they are made again.
func deletedFirst(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && strings.Contains(accessor.GetAnnotations()["helm.sh/hook-delete-policy"], "before-hook-creation")
}

func equal(a, b any) bool { return assert.ObjectsAreEqual(a, b) }

// The test of the upgrade sees each thing that it is there for.
func TestUpgrade_Refuses(t *testing.T) {
	t.Parallel()
	manifests, _, err := chartset.Render(chartset.Release{Folder: built, Chart: "apipay", Values: map[string]any{}})
	require.NoError(t, err)
	old := decode(t, manifests)
	for want, change := range map[string]func(text string) string{
		"Deployment/apipay-payment-api: the selector is immutable": func(s string) string {
			return strings.Replace(s, "  selector:\n    matchLabels:\n", "  selector:\n    matchLabels:\n      more: label\n", 1)
		},
		"Service/apipay-payment-api: the cluster IP is immutable": func(s string) string {
			return strings.Replace(s, "type: ClusterIP", "type: ClusterIP\n  clusterIP: None", 1)
		},
		"Service/apipay-payment-api: who calls it knows its ports": func(s string) string {
			return strings.Replace(s, "port: 8080", "port: 80", 1)
		},
		"Job/apipay-migrations: the template is immutable": func(s string) string {
			return strings.Replace(strings.Replace(s, "before-hook-creation,", "", 1), "args: [up]", "args: [status]", 1)
		},
		"ConfigMap/apipay-payment-api is gone": func(s string) string {
			return strings.Replace(s, "name: apipay-payment-api\n", "name: apipay-other\n", 1)
		},
	} {
		kind, rest, _ := strings.Cut(want, "/")
		name := strings.FieldsFunc(rest, func(r rune) bool { return r == ':' || r == ' ' })[0]
		changed := append([]chartset.Manifest{}, manifests...)
		for i, manifest := range changed {
			if manifest.Kind == kind && manifest.Name == name {
				parts, err := chartset.Split(manifest.Template, change(string(manifest.YAML)))
				require.NoError(t, err)
				changed[i] = parts[0]
			}
		}
		require.Equal(t, []string{want}, refused(old, decode(t, changed)))
	}
}
