// Command schemagen writes values.schema.json of every chart. What the charts share is written once here, and the settings that a
// chart takes are those that its service reads by pkg/config.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for chart, schema := range schemas() {
		text, err := encode(schema)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], chart, "values.schema.json"), text, 0o644) // #nosec G306 -- a source file
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "schemagen:", err)
			os.Exit(1)
		}
	}
}

func encode(schema object) ([]byte, error) {
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func schemas() map[string]object {
	return map[string]object{
		"payment-api": service("payment-api", with(api(), object{})),
		"admin-api": service("admin-api", with(api(), object{
			"staffTokens":      secretKey(true),
			"oidcClientSecret": secretKey(true),
		})),
		"outbox-relay":       service("outbox-relay", worker()),
		"webhook-dispatcher": service("webhook-dispatcher", with(worker(), object{"proxyURL": secretKey(true)})),
		"migrations":         migrations(),
		"apipay":             umbrella(),
	}
}

func service(name string, more object) object {
	return document("Values of the chart "+name, with(workload(), with(more, object{
		"replicas": integer(0, 100),
		"autoscaling": strict(object{
			"enabled": boolean(), "minReplicas": integer(1, 100), "maxReplicas": integer(1, 100),
			"targetCPUUtilizationPercentage": integer(10, 100),
			"externalMetrics":                list(externalMetric()),
		}),
		"config":         settings(name),
		"preStopSeconds": integer(0, 60),
	})))
}

func api() object {
	return object{
		"ports": ports("http", "ops"),
		"ingress": object{
			"type": "object", "additionalProperties": false, "properties": object{
				"enabled": boolean(), "className": text(""), "annotations": texts(),
				"host": text(`^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`), "tlsSecret": text(orEmpty(dnsName)),
			},
			"if":   object{"properties": object{"enabled": object{"const": true}}},
			"then": object{"properties": object{"host": object{"minLength": 1}, "tlsSecret": object{"minLength": 1}}},
		},
		"networkPolicy": strict(object{"clients": peers(), "extraEgress": rules()}),
	}
}

func worker() object {
	return object{"ports": ports("ops"), "networkPolicy": strict(object{"extraEgress": rules()})}
}

func migrations() object {
	return document("Values of the chart migrations", with(workload(), object{
		"job": strict(object{
			"backoffLimit": integer(0, 20), "activeDeadlineSeconds": integer(30, 86400), "ttlSecondsAfterFinished": integer(60, 604800),
		}),
		"bootstrapConfigMap": boolean(),
		"networkPolicy":      strict(object{"extraEgress": rules()}),
	}))
}

// umbrella leaves a chart's own values to its own schema, which Helm asks too.
func umbrella() object {
	part := object{"type": "object"}
	return document("Values of the chart apipay", object{
		"migrations": part, "payment-api": part, "admin-api": part, "outbox-relay": part, "webhook-dispatcher": part,
		"global":         global(),
		"prometheusRule": strict(object{"enabled": boolean(), "runbookBaseURL": text(`^$|^https?://`)}),
		"dashboards": strict(object{
			"enabled": boolean(), "label": text(labelKey), "labelValue": text(labelValue), "folder": text(""),
		}),
		"defaultDeny": boolean(),
	})
}

// workload is what every chart with pods has.
func workload() object {
	return object{
		"enabled": boolean(),
		"global":  global(),
		// Helm adds what the library chart of that name gets.
		"service": strict(object{"global": object{"type": "object"}}),
		"image": strict(object{
			"registry": registry(), "repository": text(`^[a-z0-9]+([._/-][a-z0-9]+)*$`), "tag": tag(),
			"digest": text(orEmpty(`^sha256:[0-9a-f]{64}$`)), "pullSecrets": list(text(dnsName)),
		}),
		"database":          secretKey(true),
		"resources":         resources(),
		"podLabels":         podLabels(),
		"podAnnotations":    texts(),
		"nodeSelector":      texts(),
		"tolerations":       list(object{"type": "object"}),
		"affinity":          object{"type": "object"},
		"priorityClassName": text(""),
	}
}
