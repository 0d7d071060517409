package charts_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"

	"apipay.io/hub/charts/chartset"
)

func TestLint(t *testing.T) {
	t.Parallel()
	for name, release := range releases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := lint.RunAll(filepath.Join(built, release.Chart), release.Values, "payments")
			for _, message := range result.Messages {
				if message.Err.Error() == "icon is recommended" {
					continue
				}
				require.Less(t, message.Severity, support.WarningSev, "%v", message)
			}
		})
	}
}

// Every manifest decodes strictly, has names that Kubernetes takes, and is made once.
func TestManifests(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		require.NotEmpty(t, o.decoded)
		seen := map[string]bool{}
		for i, object := range o.decoded {
			accessor, err := meta.Accessor(object)
			require.NoError(t, err)
			name := accessor.GetName()
			require.Empty(t, validation.IsDNS1123Subdomain(name), name)
			require.LessOrEqual(t, len(name), validation.DNS1035LabelMaxLength, name)
			require.Empty(t, accessor.GetNamespace(), "the release's namespace is not written into a manifest")
			kind := o.manifests[i].Kind + "/" + name
			require.False(t, seen[kind], kind)
			seen[kind] = true
			require.Equal(t, "apipay", accessor.GetLabels()["app.kubernetes.io/part-of"], kind)
			for key, value := range accessor.GetLabels() {
				require.Empty(t, validation.IsQualifiedName(key), kind)
				require.Empty(t, validation.IsValidLabelValue(value), "%s %s", kind, key)
			}
		}
	})
}

// A long release name is cut, and nothing breaks.
func TestManifests_LongReleaseName(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Name: "a-release-name-as-long-as-helm-lets-one-be-which-is-53", Values: examples(t)["full"]})
	for name, service := range o.services {
		require.Empty(t, validation.IsDNS1035Label(name), name)
		require.Contains(t, o.deployments, name)
		require.NotEmpty(t, service.Spec.Selector)
	}
	require.Len(t, o.services, len(chartset.Services))
}

func TestNotes(t *testing.T) {
	t.Parallel()
	_, notes, err := chartset.Render(chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["production"]})
	require.NoError(t, err)
	require.Contains(t, notes, "https://console.payments.example.com/")
	require.Contains(t, notes, "https://api.payments.example.com/docs")
}

// What "helm package" would make holds all that it needs.
func TestPackage(t *testing.T) {
	t.Parallel()
	archives, err := chartset.Package(built, t.TempDir())
	require.NoError(t, err)
	require.Len(t, archives, len(chartset.Names))
	umbrella, err := loader.Load(archives[len(archives)-1])
	require.NoError(t, err)
	require.Len(t, umbrella.Dependencies(), len(chartset.Names)-1)
	for _, part := range umbrella.Dependencies() {
		require.Len(t, part.Dependencies(), 1, part.Name())
		require.Equal(t, umbrella.Metadata.Version, part.Metadata.Version, part.Name())
		require.Equal(t, umbrella.AppVersion(), part.AppVersion(), part.Name())
	}
}
