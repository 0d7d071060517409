package main

// global is the block that all charts take.
func global() object {
	return strict(object{
		"image": strict(object{
			"registry": registry(), "tag": tag(), "pullPolicy": oneOf("IfNotPresent", "Always", "Never"), "pullSecrets": list(text(dnsName)),
		}),
		"database": strict(object{"existingSecret": text(dnsName), "ports": with(list(port()), object{"minItems": 1}), "peers": peers()}),
		"kafka": strict(object{
			"brokers": with(list(text(`^[A-Za-z0-9._\[\]:-]+:[0-9]{1,5}$`)), object{"minItems": 1}),
			"tls":     boolean(),
			"sasl": object{
				"type": "object", "additionalProperties": false, "properties": object{
					"mechanism": oneOf("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "username": text(""),
					"existingSecret": text(orEmpty(dnsName)), "key": text(fileKey),
				},
				"if":   object{"properties": object{"mechanism": object{"minLength": 1}}},
				"then": object{"properties": object{"username": object{"minLength": 1}, "existingSecret": object{"minLength": 1}}},
				"else": object{"properties": object{"username": object{"const": ""}, "existingSecret": object{"const": ""}}},
			},
			"peers": peers(), "morePorts": list(port()),
		}),
		"keyset":   secretKey(false),
		"caBundle": strict(object{"existingConfigMap": text(orEmpty(dnsName)), "key": text(fileKey)}),
		"config":   settings(""),
		"otel":     otel(),
		"monitoring": strict(object{
			"serviceMonitors": boolean(), "labels": texts(), "interval": text(`^[0-9]+(ms|s|m)$`),
		}),
		"networkPolicy": strict(object{
			"enabled": boolean(), "dns": peers(), "prometheus": peers(), "otel": peers(),
			"neverPublic": list(text(`^[0-9a-f.:]+/[0-9]{1,3}$`)),
		}),
	})
}

// otel takes what the OpenTelemetry SDK reads from the environment; headers can hold a token, and this is no place for one.
func otel() object {
	return object{
		"type": "object",
		"propertyNames": object{
			"pattern": "^OTEL_[A-Z0-9_]+$",
			"not":     object{"pattern": "_HEADERS$"},
		},
		"additionalProperties": object{"type": []string{"string", "integer", "number"}},
	}
}

func externalMetric() object {
	schema := strict(object{
		"name": text("^[a-zA-Z_:][a-zA-Z0-9_:.-]*$"), "matchLabels": texts(), "averageValue": quantity(), "value": quantity(),
	})
	schema["required"] = []string{"name"}
	schema["oneOf"] = []object{{"required": []string{"averageValue"}}, {"required": []string{"value"}}}
	return schema
}

// resources are asked for in full: what a pod may take at most, and what it is sure to get.
func resources() object {
	amounts := func() object {
		schema := with(strict(object{"cpu": quantity(), "memory": quantity(), "ephemeral-storage": quantity()}),
			object{"required": []string{"cpu", "memory"}})
		return schema
	}
	return with(strict(object{"requests": amounts(), "limits": amounts()}), object{"required": []string{"requests", "limits"}})
}

func podLabels() object {
	return with(texts(), object{"propertyNames": object{"not": object{"pattern": "^app\\.kubernetes\\.io/"}}})
}
