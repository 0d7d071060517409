package charts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apipay.io/hub/charts/chartset"
)

// drain is what a service may take between SIGTERM and its end; databaseWait is how long its start waits for the database.
const (
	drain        = 15 * time.Second
	databaseWait = 30 * time.Second
)

// What runs has no more rights than it needs.
func TestPods_Rights(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		require.NotEmpty(t, o.pods())
		for name, template := range o.pods() {
			pod := template.Spec
			require.NotNil(t, pod.AutomountServiceAccountToken, name)
			require.False(t, *pod.AutomountServiceAccountToken, name)
			require.Contains(t, o.accounts, pod.ServiceAccountName, name)
			require.False(t, *o.accounts[pod.ServiceAccountName].AutomountServiceAccountToken, name)
			// A Service apipay-x in the namespace would otherwise become APIPAY_X_PORT, and the start refuses unknown names.
			require.NotNil(t, pod.EnableServiceLinks, name)
			require.False(t, *pod.EnableServiceLinks, name)
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, name)
			require.Empty(t, pod.InitContainers, name)
			require.True(t, *pod.SecurityContext.RunAsNonRoot, name)
			require.EqualValues(t, 65532, *pod.SecurityContext.RunAsUser, name)
			require.EqualValues(t, 65532, *pod.SecurityContext.RunAsGroup, name)
			require.EqualValues(t, 65532, *pod.SecurityContext.FSGroup, name)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
			for _, volume := range pod.Volumes {
				require.Nil(t, volume.HostPath, name)
			}
			for _, container := range pod.Containers {
				requireConfined(t, container)
			}
		}
	})
}

func requireConfined(t *testing.T, container corev1.Container) {
	t.Helper()
	name, security := container.Name, container.SecurityContext
	require.False(t, *security.AllowPrivilegeEscalation, name)
	require.True(t, *security.ReadOnlyRootFilesystem, name)
	require.True(t, *security.RunAsNonRoot, name)
	require.Nil(t, security.Privileged, name)
	require.Equal(t, []corev1.Capability{"ALL"}, security.Capabilities.Drop, name)
	require.Empty(t, security.Capabilities.Add, name)
	for _, mount := range container.VolumeMounts {
		require.True(t, mount.ReadOnly, "%s: %s", name, mount.MountPath)
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := container.Resources.Requests[resource], container.Resources.Limits[resource]
		require.Positive(t, request.Sign(), "%s requests %s", name, resource)
		require.LessOrEqual(t, request.Cmp(limit), 0, "%s: %s", name, resource)
	}
	require.Empty(t, container.Command, "%s: an image without a shell runs its own program", name)
}

// An image is one build: a tag that says which, or a digest.
func TestPods_Images(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for name, template := range o.pods() {
			image := template.Spec.Containers[0].Image
			require.Regexp(t, `^([a-z0-9.:-]+/)?apipay/`+name+`(:[0-9]+\.[0-9]+\.[0-9]+|@sha256:[0-9a-f]{64})$`, image)
		}
	})
}

// Services drain within their grace, start within their startup probe's patience, and never all at once are away.
func TestDeployments_Lifecycle(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for name, deployment := range o.deployments {
			pod := deployment.Spec.Template.Spec
			container := pod.Containers[0]
			grace, pause := time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, time.Duration(0)
			if container.Lifecycle != nil {
				pause = time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
			}
			require.Greater(t, grace, pause+drain, name)
			_, serves := o.port(deployment.Spec.Template, "http")
			require.Equal(t, serves, pause >= 5*time.Second, "%s: who is called goes on answering until that ends", name)

			startup := container.StartupProbe
			require.Greater(t, time.Duration(startup.PeriodSeconds*startup.FailureThreshold)*time.Second, databaseWait, name)
			for kind, probe := range map[string]*corev1.Probe{
				"startup": startup, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe,
			} {
				require.NotNil(t, probe, "%s %s", name, kind)
				// /readyz gives the database two seconds.
				require.Greater(t, probe.TimeoutSeconds, int32(2), "%s %s", name, kind)
			}
			require.Equal(t, container.StartupProbe.HTTPGet, container.LivenessProbe.HTTPGet, name)

			rolling := deployment.Spec.Strategy.RollingUpdate
			require.Zero(t, rolling.MaxUnavailable.IntValue(), name)
			require.Positive(t, rolling.MaxSurge.IntValue(), name)
			require.NotEmpty(t, deployment.Spec.Template.Annotations["checksum/config"], name)
		}
	})
}

// port is the container's port of that name.
func (o objects) port(template corev1.PodTemplateSpec, name string) (int32, bool) {
	for _, port := range template.Spec.Containers[0].Ports {
		if port.Name == name {
			return port.ContainerPort, true
		}
	}
	return 0, false
}

// A change of a setting restarts the service that reads it, and no other.
func TestDeployments_Checksum(t *testing.T) {
	t.Parallel()
	checksums := func(values string) map[string]string {
		found := map[string]string{}
		for name, deployment := range render(t, chartset.Release{Folder: built, Chart: "apipay", Values: parse(t, values)}).deployments {
			found[name] = deployment.Spec.Template.Annotations["checksum/config"]
		}
		return found
	}
	before, after := checksums("{}"), checksums("outbox-relay: {config: {APIPAY_OUTBOX_BATCH: 100}}")
	for name := range before {
		require.Equal(t, name != "apipay-outbox-relay", before[name] == after[name], name)
	}
}

// Whatever selects pods selects those of its own service, and one of each kind is there.
func TestSelectors(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for name, deployment := range o.deployments {
			labels := deployment.Spec.Template.Labels
			require.Subset(t, labels, deployment.Spec.Selector.MatchLabels, name)
			require.Len(t, deployment.Spec.Selector.MatchLabels, 2, "what may change is not in a selector")
			require.Contains(t, o.services, name)
			require.Subset(t, labels, o.services[name].Spec.Selector, name)
			require.Contains(t, o.budgets, name)
			require.Equal(t, deployment.Spec.Selector, o.budgets[name].Spec.Selector, name)
			require.Equal(t, 1, o.budgets[name].Spec.MaxUnavailable.IntValue(), name)
			require.Contains(t, o.policies, name)
			require.Equal(t, *deployment.Spec.Selector, o.policies[name].Spec.PodSelector, name)
			require.Len(t, deployment.Spec.Template.Spec.TopologySpreadConstraints, 2, name)
			for _, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
				require.Equal(t, deployment.Spec.Selector, spread.LabelSelector, name)
			}
			requireScaled(t, o, name)
			for other, another := range o.deployments {
				if other != name {
					require.False(t, subset(another.Spec.Template.Labels, deployment.Spec.Selector), "%s selects %s", name, other)
				}
			}
			requirePortsMeet(t, o, name)
		}
	})
}

func requireScaled(t *testing.T, o objects, name string) {
	t.Helper()
	scaler, scaled := o.scalers[name]
	require.Equal(t, scaled, o.deployments[name].Spec.Replicas == nil, "%s: two that set the replicas fight", name)
	if !scaled {
		return
	}
	require.Equal(t, "Deployment", scaler.Spec.ScaleTargetRef.Kind)
	require.Equal(t, "apps/v1", scaler.Spec.ScaleTargetRef.APIVersion)
	require.Equal(t, name, scaler.Spec.ScaleTargetRef.Name)
	require.GreaterOrEqual(t, *scaler.Spec.MinReplicas, int32(2), name)
	require.Equal(t, corev1.ResourceCPU, scaler.Spec.Metrics[0].Resource.Name, name)
}

func requirePortsMeet(t *testing.T, o objects, name string) {
	t.Helper()
	template := o.deployments[name].Spec.Template
	for _, port := range o.services[name].Spec.Ports {
		number, ok := o.port(template, port.TargetPort.StrVal)
		require.True(t, ok, "%s: %s", name, port.TargetPort.StrVal)
		require.Equal(t, number, port.Port)
	}
	if monitor, ok := o.monitors[name]; ok {
		require.True(t, subset(o.services[name].Labels, &monitor.Spec.Selector), name)
		require.True(t, slices.ContainsFunc(o.services[name].Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == monitor.Spec.Endpoints[0].Port }), name)
	}
	if ingress, ok := o.ingresses[name]; ok {
		backend := ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		require.Equal(t, name, backend.Name)
		require.Equal(t, "http", backend.Port.Name)
		require.Equal(t, ingress.Spec.Rules[0].Host, ingress.Spec.TLS[0].Hosts[0], "keys and tokens travel under TLS")
		require.NotEmpty(t, ingress.Spec.TLS[0].SecretName)
	}
}

func subset(labels map[string]string, selector *metav1.LabelSelector) bool {
	for key, value := range selector.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// The job is a hook that can be made again, and so is all that it needs.
func TestMigrations(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for name, job := range o.jobs {
			require.Equal(t, []string{"up"}, job.Spec.Template.Spec.Containers[0].Args)
			require.Equal(t, corev1.RestartPolicyNever, job.Spec.Template.Spec.RestartPolicy)
			require.Positive(t, *job.Spec.BackoffLimit)
			require.Positive(t, *job.Spec.ActiveDeadlineSeconds)
			require.Positive(t, *job.Spec.TTLSecondsAfterFinished)
			hook := job.Annotations["helm.sh/hook"]
			require.Equal(t, "pre-install,pre-upgrade", hook)
			require.Contains(t, job.Annotations["helm.sh/hook-delete-policy"], "before-hook-creation", "a job cannot be changed")
			for _, need := range []metav1.Object{o.accounts[job.Spec.Template.Spec.ServiceAccountName], o.policies[name]} {
				require.Equal(t, hook, need.GetAnnotations()["helm.sh/hook"])
				require.Less(t, weight(t, need), weight(t, job), "before the job")
			}
		}
	})
}

func weight(t *testing.T, object metav1.Object) int {
	t.Helper()
	var weight int
	_, err := fmt.Sscan(strings.TrimSpace(object.GetAnnotations()["helm.sh/hook-weight"]), &weight)
	require.NoError(t, err)
	return weight
}
