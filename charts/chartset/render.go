package chartset

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Release is what is rendered: a chart of a folder that [Build] made, with values.
type Release struct {
	Folder, Chart string
	// Name of the release; "apipay" if empty.
	Name   string
	Values map[string]any
	// SkipSchema leaves out values.schema.json, as helm's --skip-schema-validation does.
	SkipSchema bool
}

// Manifest is one object that a chart makes.
type Manifest struct {
	// Template is the path of the template that made it, from the chart that was rendered.
	Template string
	YAML     []byte
	Kind     string
	Name     string
	// Labels and Annotations of the object.
	Labels, Annotations map[string]string
}

// Render makes a release's manifests, hooks among them, in the order of their templates' paths, and the notes.
func Render(release Release) (manifests []Manifest, notes string, err error) {
	chart, err := loader.LoadDir(filepath.Join(release.Folder, release.Chart))
	if err != nil {
		return nil, "", err
	}
	if err := chartutil.ProcessDependencies(chart, release.Values); err != nil {
		return nil, "", err
	}
	name := release.Name
	if name == "" {
		name = "apipay"
	}
	values, err := util.ToRenderValuesWithSchemaValidation(chart, release.Values,
		common.ReleaseOptions{Name: name, Namespace: "payments", Revision: 1, IsInstall: true}, common.DefaultCapabilities, release.SkipSchema)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return nil, "", err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, "NOTES.txt") {
			if path == release.Chart+"/templates/NOTES.txt" {
				notes = files[path]
			}
			continue
		}
		list, err := Split(path, files[path])
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", path, err)
		}
		manifests = append(manifests, list...)
	}
	return manifests, notes, nil
}

// Split reads the objects of one file.
func Split(path, content string) ([]Manifest, error) {
	var manifests []Manifest
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, err
		}
		var head struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name        string            `json:"name"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, err
		}
		if head.Kind == "" && strings.TrimSpace(string(document)) == "" {
			continue
		}
		manifests = append(manifests, Manifest{
			Template: path, YAML: document, Kind: head.Kind, Name: head.Metadata.Name,
			Labels: head.Metadata.Labels, Annotations: head.Metadata.Annotations,
		})
	}
}
