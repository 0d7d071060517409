// Package telemetry holds the dashboards and alerts of the charts against docs/metrics.md, and the alerts against series that
// they must and must not fire on. It is a module of its own: Prometheus's versions of Kubernetes' libraries are not Helm's.
package telemetry
