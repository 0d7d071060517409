package conformance

import (
	"bytes"
	_ "embed"
	"encoding/json"
)

//go:embed languages.json
var languagesFile []byte

// Language says how an SDK's runners are built and started.
type Language struct {
	Name string `json:"name"`
	// Dir is the SDK's folder, beside this package's.
	Dir string `json:"dir"`
	// Build is run once, in Dir, before the runners; absent if there is nothing to build.
	Build []string `json:"build,omitempty"`
	// Runners has one entry per variant: a synchronous and an asynchronous client, for instance.
	Runners []Variant `json:"runners"`
}

// Variant is one runner of a language; Command is started in the language's Dir.
type Variant struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

// Languages reads languages.json.
func Languages() ([]Language, error) {
	decoder := json.NewDecoder(bytes.NewReader(languagesFile))
	decoder.DisallowUnknownFields()
	var languages []Language
	return languages, decoder.Decode(&languages)
}
