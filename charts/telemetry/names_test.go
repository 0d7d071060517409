package telemetry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

var (
	root = func() string {
		_, file, _, _ := runtime.Caller(0)
		return filepath.Join(filepath.Dir(file), "../..")
	}()
	alertsFile  = filepath.Join(root, "charts/apipay/files/alerts.yaml")
	dashboards  = filepath.Join(root, "charts/apipay/files/dashboards")
	expressions = parser.NewParser(parser.Options{})
)

// targetLabels come from the scrape, on every series.
var targetLabels = []string{"job", "instance", "namespace", "pod"}

// exported are the series of docs/metrics.md with their labels, which a test over the real programs keeps true.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	require.NoError(t, err)
	series := map[string][]string{"up": targetLabels}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		name := strings.Trim(strings.TrimSpace(cells[0]), "`")
		own := slices.Clone(targetLabels)
		for label := range strings.SplitSeq(strings.ReplaceAll(cells[4], "`", ""), ",") {
			if label = strings.TrimSpace(label); label != "" {
				own = append(own, label)
			}
		}
		if strings.TrimSpace(cells[2]) == "histogram" {
			series[name+"_sum"], series[name+"_count"] = own, own
			series[name+"_bucket"] = append(slices.Clone(own), "le")
			continue
		}
		series[name] = own
	}
	require.Greater(t, len(series), 30)
	return series
}

// check parses an expression and holds each metric and label in it against what is exported.
func check(t *testing.T, series map[string][]string, where, expression string) {
	t.Helper()
	// Grafana fills its own variables in.
	expression = strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m", "$__range", "1h").Replace(expression)
	tree, err := expressions.ParseExpr(expression)
	require.NoError(t, err, "%s: %s", where, expression)
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			require.Contains(t, series, n.Name, "%s: no service exports it: %s", where, expression)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					require.Contains(t, series[n.Name], m.Name, "%s: %s has no such label", where, n.Name)
				}
			}
		case *parser.AggregateExpr:
			requireLabels(t, series, where, n.Grouping, n.Expr)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				requireLabels(t, series, where, n.VectorMatching.MatchingLabels, n)
			}
		}
		return nil
	})
}

// requireLabels says that every metric below a grouping has the labels that it groups by.
func requireLabels(t *testing.T, series map[string][]string, where string, grouping []string, below parser.Node) {
	t.Helper()
	parser.Inspect(below, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			for _, label := range grouping {
				require.Contains(t, series[n.Name], label, "%s: grouped by a label that %s does not have", where, n.Name)
			}
		}
		return nil
	})
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func readAlerts(t *testing.T) ruleFile {
	t.Helper()
	content, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	var file ruleFile
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	return file
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	series := exported(t)
	seen := map[string]bool{}
	for _, group := range readAlerts(t).Groups {
		for _, rule := range group.Rules {
			require.NotEmpty(t, rule.Alert)
			require.False(t, seen[rule.Alert], "%s twice", rule.Alert)
			seen[rule.Alert] = true
			check(t, series, rule.Alert, rule.Expr)
			require.Contains(t, []string{"info", "warning", "critical"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			runbook := rule.Annotations["runbook_url"]
			require.True(t, strings.HasPrefix(runbook, "docs/runbooks/"), rule.Alert)
			text, err := os.ReadFile(filepath.Join(root, runbook))
			require.NoError(t, err, rule.Alert)
			require.Contains(t, string(text), rule.Alert, "%s does not name the alert that leads to it", runbook)
		}
	}
}

type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
			Type string `json:"type"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID          int                      `json:"id"`
		Type        string                   `json:"type"`
		Title       string                   `json:"title"`
		Datasource  struct{ UID string }     `json:"datasource"`
		GridPos     struct{ H, W, X, Y int } `json:"gridPos"`
		FieldConfig struct {
			Defaults struct {
				Unit string `json:"unit"`
			} `json:"defaults"`
		} `json:"fieldConfig"`
		Targets []struct {
			Expr       string               `json:"expr"`
			RefID      string               `json:"refId"`
			Datasource struct{ UID string } `json:"datasource"`
		} `json:"targets"`
	} `json:"panels"`
}

func TestDashboards(t *testing.T) {
	t.Parallel()
	series := exported(t)
	used := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dashboards, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	uids := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(content, &d), file)
		require.NotEmpty(t, d.Title)
		require.False(t, uids[d.UID], "%s twice", d.UID)
		uids[d.UID] = true
		require.Equal(t, "datasource", d.Templating.List[0].Type, file)
		ids := map[int]bool{}
		for _, panel := range d.Panels {
			where := filepath.Base(file) + ": " + panel.Title
			require.False(t, ids[panel.ID], where)
			ids[panel.ID] = true
			require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, where)
			if panel.Type == "row" {
				continue
			}
			require.NotEmpty(t, panel.FieldConfig.Defaults.Unit, where)
			require.Equal(t, "${datasource}", panel.Datasource.UID, where)
			require.NotEmpty(t, panel.Targets, where)
			for _, target := range panel.Targets {
				require.Equal(t, "${datasource}", target.Datasource.UID, where)
				check(t, series, where, target.Expr)
				for name := range series {
					used[name] = used[name] || strings.Contains(target.Expr, name)
				}
			}
		}
	}
	// What no dashboard shows is looked at by an alert, or is in this list for a reason.
	alerts, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	for name := range series {
		family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count"), "_bucket")
		shown := slices.ContainsFunc([]string{"", "_count", "_bucket"}, func(end string) bool { return used[family+end] })
		require.True(t, shown || strings.Contains(string(alerts), family) || family == "apipay_db_pool_waits_total", "nobody looks at %s", family)
	}
}
