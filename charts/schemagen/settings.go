package main

import (
	"slices"
	"strings"

	"apipay.io/hub/pkg/config"
)

// byChart are settings that a chart makes itself, of its ports, of global.kafka and of the secrets that it mounts; nobody sets
// them by hand. APIPAY_DEV is for development alone.
var byChart = []string{
	"APIPAY_HTTP_ADDR", "APIPAY_OPS_ADDR", "APIPAY_DEV", "APIPAY_ADMIN_TOKENS_FILE",
	"APIPAY_KAFKA_BROKERS", "APIPAY_KAFKA_TLS", "APIPAY_KAFKA_SASL_MECHANISM", "APIPAY_KAFKA_SASL_USERNAME",
}

// settings are those that the service reads and that may be set by hand; of any service if it is "".
func settings(service string) object {
	properties := object{}
	for _, variable := range config.Variables {
		if variable.Secret || slices.Contains(byChart, variable.Name) {
			continue
		}
		if service == "" || slices.Contains(variable.Services, service) {
			properties[variable.Name] = setting(variable)
		}
	}
	return strict(properties)
}

// setting refuses what the service would refuse at its start, as far as a pattern can tell.
func setting(variable config.Variable) object {
	schema := object{"description": variable.Doc}
	switch name, initial := variable.Name, variable.Default; {
	case name == "APIPAY_GATEWAY_LIVE":
		schema["type"], schema["not"] = "string", object{"const": "sandbox"}
	case name == "APIPAY_LOG_LEVEL":
		schema["enum"] = []string{"debug", "info", "warn", "error"}
	case name == "APIPAY_RATE_LIMIT_RPS":
		schema["type"], schema["pattern"], schema["minimum"] = []string{"string", "number"}, `^[0-9]+(\.[0-9]+)?$`, 0
	case initial == "true" || initial == "false":
		schema["type"], schema["pattern"] = []string{"string", "boolean"}, "^(true|false)$"
	case strings.Contains(initial, ","):
		schema["type"], schema["pattern"] = "string", "^"+duration+"(,"+duration+")*$"
	case initial != "" && strings.Trim(initial, "0123456789") == "":
		schema["type"], schema["pattern"], schema["minimum"] = []string{"string", "integer"}, "^[0-9]+$", 0
	case initial != "" && strings.Trim(initial, "0123456789") != initial && strings.ContainsAny(initial[len(initial)-1:], "smh"):
		schema["type"], schema["pattern"] = "string", "^"+duration+"$"
	default:
		schema["type"] = "string"
	}
	return schema
}
