package charts_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"apipay.io/hub/charts/chartset"
)

// The umbrella makes exactly what its parts make alone with the same values, and its own objects.
func TestUmbrella_IsItsParts(t *testing.T) {
	t.Parallel()
	cases := examples(t)
	cases["defaults"] = map[string]any{}
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, _, err := chartset.Render(chartset.Release{Folder: built, Chart: "apipay", Values: values})
			require.NoError(t, err)
			inWhole := map[string]string{}
			for _, manifest := range whole {
				if part, ok := strings.CutPrefix(manifest.Template, "apipay/charts/"); ok {
					inWhole[part+" "+manifest.Name] = string(manifest.YAML)
				} else {
					require.Regexp(t, `^apipay/templates/(networkpolicy|prometheusrule|dashboards)\.yaml$`, manifest.Template)
				}
			}
			alone := map[string]string{}
			for _, chart := range chartset.Names[:len(chartset.Names)-1] {
				own := map[string]any{}
				if given, ok := values[chart].(map[string]any); ok {
					maps.Copy(own, given)
				}
				if global, ok := values["global"]; ok {
					own["global"] = global
				}
				manifests, _, err := chartset.Render(chartset.Release{Folder: built, Chart: chart, Values: own})
				require.NoError(t, err)
				for _, manifest := range manifests {
					alone[manifest.Template+" "+manifest.Name] = string(manifest.YAML)
				}
			}
			require.Equal(t, alone, inWhole)
		})
	}
}

// A part that is switched off is gone, and the others stay.
func TestUmbrella_Conditions(t *testing.T) {
	t.Parallel()
	for _, chart := range chartset.Names[:len(chartset.Names)-1] {
		manifests, _, err := chartset.Render(chartset.Release{Folder: built, Chart: "apipay", Values: parse(t, chart+": {enabled: false}")})
		require.NoError(t, err)
		parts := map[string]bool{}
		for _, manifest := range manifests {
			if part, ok := strings.CutPrefix(manifest.Template, "apipay/charts/"); ok {
				part, _, _ = strings.Cut(part, "/")
				parts[part] = true
			}
		}
		require.NotContains(t, parts, chart)
		require.Len(t, parts, len(chartset.Names)-2)
	}
}

// What the charts share has the same defaults in each: a chart alone behaves as in the umbrella.
func TestUmbrella_GlobalIsOneBlock(t *testing.T) {
	t.Parallel()
	var first string
	for _, chart := range chartset.Names {
		text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
		require.NoError(t, err)
		_, global, found := strings.Cut(string(text), "\n# What every chart of the hub shares.")
		require.True(t, found, chart)
		if first == "" {
			first = global
		}
		require.Equal(t, first, global, chart)
		values := map[string]any{}
		require.NoError(t, yaml.UnmarshalStrict(text, &values))
	}
}

// One tag and one registry for all, and one image by digest.
func TestUmbrella_Images(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: parse(t, `
global: {image: {registry: registry.example.com, tag: 2.1.0}}
outbox-relay: {image: {tag: 2.1.1}}
admin-api: {image: {registry: mirror.example.com, digest: "sha256:`+strings.Repeat("a", 64)+`"}}
`)})
	for service, image := range map[string]string{
		"payment-api":  "registry.example.com/apipay/payment-api:2.1.0",
		"outbox-relay": "registry.example.com/apipay/outbox-relay:2.1.1",
		"admin-api":    "mirror.example.com/apipay/admin-api@sha256:" + strings.Repeat("a", 64),
		"migrate":      "registry.example.com/apipay/migrate:2.1.0",
	} {
		require.Equal(t, image, o.pods()[service].Spec.Containers[0].Image)
	}
}
