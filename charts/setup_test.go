package charts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"

	"apipay.io/hub/charts/chartset"
)

// built is the folder of the charts with their dependencies.
var built string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "charts-")
	if err == nil {
		defer os.RemoveAll(folder)
		err = chartset.Build(".", folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the charts:", err)
		return 1
	}
	built = folder
	return m.Run()
}

// examples are the value files that come with the umbrella chart, by name.
func examples(t *testing.T) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	paths, err := filepath.Glob("apipay/examples/*.yaml")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found[strings.TrimSuffix(filepath.Base(path), ".yaml")] = parse(t, string(text))
	}
	require.Subset(t, slices.Collect(maps.Keys(found)), []string{"minimal", "full", "event-hubs", "external-postgres", "production"})
	return found
}

// parse reads values. A duplicate or unknown key is an error.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &values))
	return values
}

// releases are all that the tests look at: the umbrella by every example, and each chart alone by its defaults.
func releases(t *testing.T) map[string]chartset.Release {
	t.Helper()
	all := map[string]chartset.Release{}
	for _, chart := range chartset.Names {
		all[chart] = chartset.Release{Folder: built, Chart: chart, Values: map[string]any{}}
	}
	for name, values := range examples(t) {
		all["apipay "+name] = chartset.Release{Folder: built, Chart: "apipay", Values: values}
	}
	return all
}

// eachRelease runs check on the objects of every release. They are the same ones for all tests, which only look at them.
func eachRelease(t *testing.T, check func(t *testing.T, objects objects)) {
	t.Helper()
	all := releases(t)
	rendering.Do(func() {
		for name, release := range all {
			rendered[name] = render(t, release)
		}
	})
	for name := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, rendered[name])
		})
	}
}

var (
	rendering sync.Once
	rendered  = map[string]objects{}
)

// objects are what a release makes, decoded.
type objects struct {
	manifests   []chartset.Manifest
	decoded     []runtime.Object
	deployments map[string]*appsv1.Deployment
	jobs        map[string]*batchv1.Job
	configMaps  map[string]*corev1.ConfigMap
	services    map[string]*corev1.Service
	budgets     map[string]*policyv1.PodDisruptionBudget
	scalers     map[string]*autoscalingv2.HorizontalPodAutoscaler
	policies    map[string]*networkingv1.NetworkPolicy
	monitors    map[string]*monitoringv1.ServiceMonitor
	rules       map[string]*monitoringv1.PrometheusRule
	accounts    map[string]*corev1.ServiceAccount
	ingresses   map[string]*networkingv1.Ingress
}

// pods are the templates of what runs, by the container's name.
func (o objects) pods() map[string]corev1.PodTemplateSpec {
	all := map[string]corev1.PodTemplateSpec{}
	for _, deployment := range o.deployments {
		all[deployment.Spec.Template.Spec.Containers[0].Name] = deployment.Spec.Template
	}
	for _, job := range o.jobs {
		all[job.Spec.Template.Spec.Containers[0].Name] = job.Spec.Template
	}
	return all
}

// settings is a container's environment without its secrets.
func (o objects) settings(t *testing.T, container corev1.Container) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, source := range container.EnvFrom {
		require.NotNil(t, source.ConfigMapRef, "secrets come as files")
		require.Contains(t, o.configMaps, source.ConfigMapRef.Name)
		maps.Copy(settings, o.configMaps[source.ConfigMapRef.Name].Data)
	}
	for _, env := range container.Env {
		require.Nil(t, env.ValueFrom, "%s: secrets come as files", env.Name)
		require.NotContains(t, settings, env.Name, "set twice")
		settings[env.Name] = env.Value
	}
	return settings
}

func render(t *testing.T, release chartset.Release) objects {
	t.Helper()
	manifests, _, err := chartset.Render(release)
	require.NoError(t, err)
	return decode(t, manifests)
}

// decode reads manifests as a strict API server does: unknown, misspelled and repeated fields are errors.
func decode(t *testing.T, manifests []chartset.Manifest) objects {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme,
		policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	reader := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	o := objects{
		manifests: manifests, deployments: map[string]*appsv1.Deployment{}, jobs: map[string]*batchv1.Job{},
		configMaps: map[string]*corev1.ConfigMap{}, services: map[string]*corev1.Service{},
		budgets: map[string]*policyv1.PodDisruptionBudget{}, scalers: map[string]*autoscalingv2.HorizontalPodAutoscaler{},
		policies: map[string]*networkingv1.NetworkPolicy{}, monitors: map[string]*monitoringv1.ServiceMonitor{},
		rules: map[string]*monitoringv1.PrometheusRule{}, accounts: map[string]*corev1.ServiceAccount{},
		ingresses: map[string]*networkingv1.Ingress{},
	}
	for _, manifest := range manifests {
		object, _, err := reader.Decode(manifest.YAML, nil, nil)
		require.NoError(t, err, "%s:\n%s", manifest.Template, manifest.YAML)
		o.decoded = append(o.decoded, object)
		switch object := object.(type) {
		case *appsv1.Deployment:
			o.deployments[object.Name] = object
		case *batchv1.Job:
			o.jobs[object.Name] = object
		case *corev1.ConfigMap:
			o.configMaps[object.Name] = object
		case *corev1.Service:
			o.services[object.Name] = object
		case *corev1.ServiceAccount:
			o.accounts[object.Name] = object
		case *policyv1.PodDisruptionBudget:
			o.budgets[object.Name] = object
		case *autoscalingv2.HorizontalPodAutoscaler:
			o.scalers[object.Name] = object
		case *networkingv1.NetworkPolicy:
			o.policies[object.Name] = object
		case *networkingv1.Ingress:
			o.ingresses[object.Name] = object
		case *monitoringv1.ServiceMonitor:
			o.monitors[object.Name] = object
		case *monitoringv1.PrometheusRule:
			o.rules[object.Name] = object
		default:
			require.Fail(t, "an object that no test looks at", "%s: %T", manifest.Template, object)
		}
	}
	return o
}
