package compose

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

func readYAML(t *testing.T, name string, target any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, name))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, target), name)
}

// Prometheus scrapes the ops port of each service, and reads the rules that the charts ship.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	project := load(t, "observability")
	var settings struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			StaticConfigs []struct {
				Targets []string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "deploy/prometheus/prometheus.yml", &settings)
	scraped := map[string]string{}
	for _, job := range settings.ScrapeConfigs {
		scraped[job.JobName] = job.StaticConfigs[0].Targets[0]
	}
	require.Len(t, scraped, len(hub))
	for _, name := range hub {
		ops := *project.Services[name].Environment["APIPAY_OPS_ADDR"]
		require.Equal(t, name+ops[strings.LastIndex(ops, ":"):], scraped[name])
	}
	require.Equal(t, []string{"/etc/prometheus/rules/*.yaml"}, settings.RuleFiles)
	require.Equal(t, "/etc/prometheus/rules/apipay.yaml", target(t, "prometheus", "charts/apipay/files/alerts.yaml"))
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	readYAML(t, "charts/apipay/files/alerts.yaml", &rules)
	require.NotEmpty(t, rules.Groups, "a file of rules as Prometheus itself reads it")
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			require.NotEmpty(t, rule.Alert+rule.Record, group.Name)
			require.NotEmpty(t, rule.Expr, group.Name)
		}
	}
}

// Grafana finds the charts' dashboards where its provider looks, and the sources by the names they have here.
func TestGrafana(t *testing.T) {
	t.Parallel()
	var provider struct {
		Providers []struct {
			Options struct{ Path string }
		}
	}
	readYAML(t, "deploy/grafana/provisioning/dashboards/apipay.yaml", &provider)
	require.Equal(t, provider.Providers[0].Options.Path, target(t, "grafana", "charts/apipay/files/dashboards"))
	require.Equal(t, "/etc/grafana/provisioning", target(t, "grafana", "deploy/grafana/provisioning"))
	dashboards, err := filepath.Glob(filepath.Join(repository, "charts/apipay/files/dashboards/*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(dashboards), 4)
	for _, path := range dashboards {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, json.Valid(content), path)
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	readYAML(t, "deploy/grafana/provisioning/datasources/apipay.yaml", &sources)
	project := load(t, "observability")
	for _, source := range sources.Datasources {
		host, _, _ := strings.Cut(strings.TrimPrefix(source.URL, "http://"), ":")
		require.Contains(t, project.Services, host)
	}
}

// Traces go from the services to the collector and from there to Tempo.
func TestCollector(t *testing.T) {
	t.Parallel()
	var settings struct {
		Receivers map[string]struct {
			Protocols map[string]struct{ Endpoint string }
		}
		Exporters map[string]struct{ Endpoint string }
		Service   struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	readYAML(t, "deploy/otel-collector/config.yaml", &settings)
	require.Equal(t, "0.0.0.0:4318", settings.Receivers["otlp"].Protocols["http"].Endpoint, "the services speak OTLP over HTTP")
	for name, pipeline := range settings.Service.Pipelines {
		for _, exporter := range pipeline.Exporters {
			require.Contains(t, settings.Exporters, exporter, name)
		}
		require.Equal(t, []string{"otlp"}, pipeline.Receivers, name)
	}
	require.Equal(t, []string{"otlp/tempo"}, settings.Service.Pipelines["traces"].Exporters)
	require.Equal(t, "tempo:4317", settings.Exporters["otlp/tempo"].Endpoint)
	require.Equal(t, "/etc/otel-collector.yaml", target(t, "otel-collector", "deploy/otel-collector/config.yaml"))
	require.Equal(t, []string{"--config=/etc/otel-collector.yaml"}, []string(load(t, "observability").Services["otel-collector"].Command))
	require.Equal(t, "/etc/tempo.yaml", target(t, "tempo", "deploy/tempo/tempo.yaml"))
	var tempo struct {
		Distributor struct {
			Receivers map[string]struct {
				Protocols map[string]struct{ Endpoint string }
			}
		}
	}
	readYAML(t, "deploy/tempo/tempo.yaml", &tempo)
	require.Equal(t, "0.0.0.0:4317", tempo.Distributor.Receivers["otlp"].Protocols["grpc"].Endpoint)
}

// target is where a service sees a path of the repository.
func target(t *testing.T, service, source string) string {
	t.Helper()
	for _, volume := range load(t, "observability").Services[service].Volumes {
		if volume.Source == filepath.Join(repository, source) {
			return volume.Target
		}
	}
	t.Fatalf("%s does not mount %s", service, source)
	return ""
}
