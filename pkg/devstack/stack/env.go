package stack

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// ownNames are read by the stack itself and are no setting of a service.
var ownNames = []string{"APIPAY_PORT_OFFSET", "APIPAY_DEV_DIR", "APIPAY_POSTGRES_BIN"}

// fixedNames follow from how the stack is laid out: the caller's value, meant for another place, would break it.
var fixedNames = []string{
	"APIPAY_DATABASE_URL", "APIPAY_KAFKA_BROKERS", "APIPAY_HTTP_ADDR", "APIPAY_OPS_ADDR", "APIPAY_ADMIN_TOKENS_FILE",
}

// serviceEnv is the APIPAY_* environment of each service, without its listen addresses.
func serviceEnv(cfg Config, s *secrets, tokensFile, keysetFile string) map[string]map[string]string {
	caller := callerEnv(cfg.Environ)
	all := map[string]map[string]string{}
	for _, service := range services {
		env := map[string]string{}
		switch service.name {
		case PaymentAPI:
			env["APIPAY_DEV"] = "1"
			env["APIPAY_GATEWAY_LIVE"] = "sandbox"
		case AdminAPI:
			env["APIPAY_DEV"] = "1"
			env["APIPAY_ADMIN_TOKENS_FILE"] = tokensFile
		case OutboxRelay:
			env["APIPAY_KAFKA_CREATE_TOPICS"] = "true"
		}
		if service.name != OutboxRelay {
			env["APIPAY_WEBHOOK_ALLOW_CIDRS"] = "127.0.0.0/8,::1/128"
		}
		if service.name == PaymentAPI || service.name == WebhookDispatcher {
			env["APIPAY_SECRETS_KEYSET_FILE"] = keysetFile
		}
		if _, ok := caller["APIPAY_SECRETS_KEYSET"]; ok {
			delete(env, "APIPAY_SECRETS_KEYSET_FILE")
		}
		maps.Copy(env, caller)
		env["APIPAY_DATABASE_URL"] = dsn(cfg, service.role, s.RolePasswords[strings.TrimPrefix(service.role, "apipay_")])
		if service.needsKafka {
			env["APIPAY_KAFKA_BROKERS"] = address(brokerPort + cfg.PortOffset)
		}
		all[service.name] = env
	}
	return all
}

// callerEnv is what the caller's environment adds for every service.
func callerEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "APIPAY_") && !slices.Contains(ownNames, name) &&
			!slices.Contains(fixedNames, name) && !slices.Contains(fixedNames, strings.TrimSuffix(name, "_FILE")) {
			env[name] = value
		}
	}
	return env
}

// processEnv is a service's whole environment: the caller's, with only the given APIPAY_* names.
func processEnv(environ []string, apipay map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "APIPAY_") })
	for _, name := range slices.Sorted(maps.Keys(apipay)) {
		env = append(env, name+"="+apipay[name])
	}
	return env
}

func callerValue(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

const database = "apipay"

func dsn(cfg Config, role, password string) string {
	uri := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, password), Host: address(postgresPort + cfg.PortOffset),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return uri.String()
}
