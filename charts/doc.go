// Package charts holds the Helm charts of ApiPay Hub. Its tests render them with Helm's own library and hold every manifest
// against the Kubernetes types, against pkg/config and pkg/ops, and against running services.
package charts

//go:generate go run ./schemagen .
