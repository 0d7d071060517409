// Package chartset makes the charts whole and renders them, with Helm's own library: nothing needs the helm program or a cluster.
package chartset

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/downloader"
	"helm.sh/helm/v4/pkg/getter"
)

// Names of the charts, each after those that it depends on.
var Names = []string{"migrations", "payment-api", "admin-api", "outbox-relay", "webhook-dispatcher", "apipay"}

// Services are the charts with a service in them.
var Services = []string{"payment-api", "admin-api", "outbox-relay", "webhook-dispatcher"}

// Build copies the charts from source to an empty folder, and there gives each what it depends on, as "helm dependency update"
// does.
func Build(source, folder string) error {
	for _, name := range append([]string{"service"}, Names...) {
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(source, name))); err != nil {
			return fmt.Errorf("copying the chart %s: %w", name, err)
		}
	}
	settings := cli.New()
	for _, name := range Names {
		manager := downloader.Manager{
			Out: io.Discard, ChartPath: filepath.Join(folder, name), SkipUpdate: true, Getters: getter.All(settings),
			RepositoryConfig: filepath.Join(folder, "repositories.yaml"), RepositoryCache: filepath.Join(folder, ".cache"),
			ContentCache: filepath.Join(folder, ".cache"),
		}
		if err := manager.Update(); err != nil {
			return fmt.Errorf("dependencies of the chart %s: %w", name, err)
		}
	}
	return nil
}

// Package writes each chart of a folder that [Build] made into out, as an archive that helm installs.
func Package(folder, out string) ([]string, error) {
	var archives []string
	for _, name := range Names {
		loaded, err := loader.LoadDir(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("loading the chart %s: %w", name, err)
		}
		archive, err := chartutil.Save(loaded, out)
		if err != nil {
			return nil, fmt.Errorf("packaging the chart %s: %w", name, err)
		}
		slog.Debug("chart.packaged", "archive", archive)
		archives = append(archives, archive)
	}
	return archives, nil
}
