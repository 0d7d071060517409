package main

import "maps"

type object map[string]any

const (
	dnsName    = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	fileKey    = `^[-._a-zA-Z0-9]+$`
	labelKey   = `^[-._/a-zA-Z0-9]+$`
	labelValue = `^[-._a-zA-Z0-9]*$`
	duration   = `([0-9]+(\.[0-9]+)?(ms|s|m|h))+`
)

func document(title string, properties object) object {
	return with(strict(properties), object{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title})
}

// strict is an object without other members.
func strict(properties object) object {
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// with is a with what b has beside it, or instead of it.
func with(a, b object) object {
	result := maps.Clone(a)
	maps.Copy(result, b)
	return result
}

func boolean() object { return object{"type": "boolean"} }

func integer(least, most int) object {
	return object{"type": "integer", "minimum": least, "maximum": most}
}

func port() object { return integer(1, 65535) }

// ports are above 1023, since the services run without the capability to bind lower ones.
func ports(names ...string) object {
	properties := object{}
	for _, name := range names {
		properties[name] = integer(1024, 65535)
	}
	return with(strict(properties), object{"required": names})
}

func text(pattern string) object {
	if pattern == "" {
		return object{"type": "string"}
	}
	return object{"type": "string", "pattern": pattern}
}

// texts is a map of texts, such as labels.
func texts() object {
	return object{"type": "object", "additionalProperties": object{"type": "string"}}
}

func list(of object) object { return object{"type": "array", "items": of} }

func oneOf(values ...string) object { return object{"enum": values} }

func orEmpty(pattern string) string { return "^$|" + pattern }

func registry() object { return text(`^$|^[a-z0-9][a-z0-9.:/-]*[a-z0-9]$`) }

// tag names one build.
func tag() object {
	return with(text(`^$|^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`), object{"not": object{"pattern": "^[Ll][Aa][Tt][Ee][Ss][Tt]$"}})
}

func quantity() object {
	return object{"type": []string{"string", "number"}, "pattern": `^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$`}
}

// secretKey names a Secret and one of its keys; a secret itself has no place in values.
func secretKey(optional bool) object {
	name := text(dnsName)
	if optional {
		name = text(orEmpty(dnsName))
	}
	return strict(object{"existingSecret": name, "key": text(fileKey)})
}

// peers of a NetworkPolicy. An empty list would mean everybody.
func peers() object {
	selector := object{"type": "object"}
	peer := strict(object{
		"podSelector": selector, "namespaceSelector": selector,
		"ipBlock": with(strict(object{"cidr": text(""), "except": list(text(""))}), object{"required": []string{"cidr"}}),
	})
	peer["minProperties"] = 1
	return with(list(peer), object{"minItems": 1})
}

// rules of a NetworkPolicy's egress, each with somebody to talk to.
func rules() object {
	rule := strict(object{"to": peers(), "ports": list(object{"type": "object"})})
	rule["required"] = []string{"to"}
	return list(rule)
}
