package charts_test

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"apipay.io/hub/charts/chartset"
)

// Prometheus reads the alerts, and whoever is woken by one finds a summary and a runbook that is there.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("apipay/files/alerts.yaml")
	require.NoError(t, err)
	groups := requireRules(t, text)
	seen := map[string]bool{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			name := rule.Alert
			require.NotEmpty(t, name, "%s: only alerts are expected here", rule.Record)
			require.False(t, seen[name], "%s twice", name)
			seen[name] = true
			require.Contains(t, []string{"info", "warning", "critical"}, rule.Labels["severity"], name)
			require.NotEmpty(t, rule.Annotations["summary"], name)
			require.True(t, rule.For > 0 || strings.Contains(rule.Expr, "[") || rule.Labels["severity"] == "info", "%s: one bad scrape wakes nobody", name)
			runbook := rule.Annotations["runbook_url"]
			require.True(t, strings.HasPrefix(runbook, "docs/runbooks/"), "%s: %s", name, runbook)
			file, _, _ := strings.Cut(path.Base(runbook), "#")
			require.FileExists(t, filepath.Join("..", "docs", "runbooks", file), name)
		}
	}
	require.NotEmpty(t, seen)
}

func requireRules(t *testing.T, text []byte) *rulefmt.RuleGroups {
	t.Helper()
	groups, problems := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	require.Empty(t, problems)
	require.NotEmpty(t, groups.Groups)
	return groups
}

// What the chart hands to the Prometheus Operator is the same rules, their runbooks at the address that is given.
func TestAlerts_PrometheusRule(t *testing.T) {
	t.Parallel()
	original, err := os.ReadFile("apipay/files/alerts.yaml")
	require.NoError(t, err)
	for base, want := range map[string]string{"": "docs/runbooks/", "https://wiki.example.com/apipay/": "https://wiki.example.com/apipay/"} {
		values := parse(t, "prometheusRule: {enabled: true, runbookBaseURL: '"+base+"'}")
		rules := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: values}).rules["apipay"]
		require.NotNil(t, rules)
		text, err := yaml.Marshal(rules.Spec)
		require.NoError(t, err)
		requireRules(t, text)
		requireSameAlerts(t, strings.ReplaceAll(string(original), "docs/runbooks/", want), string(text))
	}
}

func requireSameAlerts(t *testing.T, want, got string) {
	t.Helper()
	wanted, given := requireRules(t, []byte(want)), requireRules(t, []byte(got))
	require.Equal(t, len(wanted.Groups), len(given.Groups))
	for i, group := range wanted.Groups {
		require.Equal(t, group.Name, given.Groups[i].Name)
		require.Len(t, given.Groups[i].Rules, len(group.Rules))
		for j, rule := range group.Rules {
			other := given.Groups[i].Rules[j]
			require.Equal(t, rule.Alert, other.Alert)
			require.Equal(t, strings.Fields(rule.Expr), strings.Fields(other.Expr), rule.Alert)
			require.Equal(t, rule.Annotations, other.Annotations, rule.Alert)
			require.Equal(t, rule.Labels, other.Labels, rule.Alert)
			require.Equal(t, rule.For, other.For, rule.Alert)
		}
	}
}

// Every dashboard is a ConfigMap that Grafana's sidecar finds, unchanged and small enough for one.
func TestDashboards(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("apipay/files/dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: parse(t, "dashboards: {enabled: true}")})
	for _, path := range paths {
		original, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Less(t, len(original), 900_000, path)
		file := filepath.Base(path)
		made := o.configMaps["apipay-dashboard-"+strings.TrimSuffix(file, ".json")]
		require.NotNil(t, made, path)
		require.Equal(t, "1", made.Labels["grafana_dashboard"])
		require.JSONEq(t, string(original), made.Data[file])
		var dashboard struct{ UID, Title string }
		require.NoError(t, json.Unmarshal(original, &dashboard))
		require.NotEmpty(t, dashboard.UID, "%s: a dashboard without a uid is another one after each upgrade", path)
		require.NotEmpty(t, dashboard.Title, path)
	}
}

// The metrics that the examples scale by are ones that the services export.
func TestExternalMetrics(t *testing.T) {
	t.Parallel()
	documented, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	found := 0
	for name, values := range examples(t) {
		for _, scaler := range render(t, chartset.Release{Folder: built, Chart: "apipay", Values: values}).scalers {
			for _, metric := range scaler.Spec.Metrics[1:] {
				require.Contains(t, string(documented), "`"+metric.External.Metric.Name+"`", name)
				found++
			}
		}
	}
	require.GreaterOrEqual(t, found, 6)
}

// Every metric of the hub that alerts, dashboards and the examples name is one that the services' source makes. (That the programs
// export it under that very name is held by docs/metrics.md and its test.)
func TestMetrics_AreMade(t *testing.T) {
	t.Parallel()
	made := instruments(t)
	files, err := filepath.Glob("apipay/files/dashboards/*.json")
	require.NoError(t, err)
	more, err := filepath.Glob("apipay/examples/*.yaml")
	require.NoError(t, err)
	files = append(append(files, more...), "apipay/files/alerts.yaml", "README.md")
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range metricName.FindAllString(string(text), -1) {
			require.True(t, slices.ContainsFunc(made, func(instrument string) bool {
				suffix, ok := strings.CutPrefix(name, instrument)
				return ok && slices.Contains(suffixes, suffix)
			}), "%s: no service makes %s", file, name)
			found++
		}
	}
	require.Greater(t, found, 30)
}

var (
	metricName     = regexp.MustCompile(`\b(apipay_[a-z]+_[a-z_]+|http_server_[a-z_]+)`)
	instrumentName = regexp.MustCompile(`"((apipay|http\.server)\.[a-z_.]+)"`)
	suffixes       = []string{"", "_total", "_seconds", "_bytes", "_seconds_bucket", "_seconds_sum", "_seconds_count", "_bucket", "_sum", "_count", "_seconds_total"}
)

// instruments are the names that the source gives to metrics, as Prometheus writes them.
func instruments(t *testing.T) []string {
	t.Helper()
	var made []string
	for _, root := range []string{"../services", "../pkg"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && slices.Contains([]string{"node_modules", "sdk", "devstack"}, entry.Name()) {
				return fs.SkipDir
			}
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(path)
			for _, match := range instrumentName.FindAllStringSubmatch(string(text), -1) {
				made = append(made, strings.ReplaceAll(match[1], ".", "_"))
			}
			return err
		}))
	}
	require.Contains(t, made, "apipay_outbox_oldest_pending")
	return made
}
