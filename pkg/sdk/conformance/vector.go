package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

//go:embed vectors/*.json
var vectorFiles embed.FS

// The modes of a server.
const (
	ModePlain          = "plain"
	ModeRefuse         = "refuse"          // connections are refused
	ModeConnectTimeout = "connect_timeout" // connections are never completed
	ModeUnknownHost    = "unknown_host"    // the base URL's name does not exist
	ModeTLSSelfSigned  = "tls_self_signed"
	ModeTLSWrongName   = "tls_wrong_name"
	ModeTLSExpired     = "tls_expired"
)

// Vector is one case: what the server plays, what the SDK is asked to do, and what must come of it.
type Vector struct {
	// ID is unique over all files.
	ID string `json:"id"`
	// Cases names the acceptance cases that it comes from.
	Cases []string `json:"cases"`
	About string   `json:"about"`
	// Server is absent in vectors without a network.
	Server *Script `json:"server,omitempty"`
	Client Client  `json:"client"`
	Steps  []Step  `json:"steps"`
	Expect Expect  `json:"expect"`
	// ByLanguage changes the expectation for a language ("python") or for one of its variants ("python/async").
	ByLanguage map[string]Difference `json:"by_language,omitempty"`

	// Group is the file's name without extension.
	Group string `json:"-"`
}

// Script is what the server does.
type Script struct {
	Mode string `json:"mode,omitempty"`
	// Answers are played in the order in which requests arrive, over all connections.
	Answers []Answer `json:"answers,omitempty"`
	// Second starts a second server, which {{second}} in headers and bodies of answers names; it answers 200 to all.
	Second bool `json:"second,omitempty"`
	// BasePath is appended to the base URL that the client is given.
	BasePath string `json:"base_path,omitempty"`
	// SettleMS is waited after the last step before the wire is judged, for requests that come too late.
	SettleMS int `json:"settle_ms,omitempty"`
}

// Client is how the runner constructs the SDK's client. BaseURL is filled in by the judge.
type Client struct {
	BaseURL string `json:"base_url"`
	APIKey  string `json:"api_key"`
	// Absent members are left to the SDK's defaults.
	TimeoutMS        *int `json:"timeout_ms,omitempty"`
	ConnectTimeoutMS *int `json:"connect_timeout_ms,omitempty"`
	MaxRetries       *int `json:"max_retries,omitempty"`
	// ClockMS is what the injected clock shows, in Unix milliseconds.
	ClockMS int64 `json:"clock_ms"`
	// Random is the injected source: its numbers in [0,1) in turn, from the start again after the last one. Absent: the
	// SDK's own source.
	Random []float64 `json:"random,omitempty"`
	// Sleeper is "fake" (records and returns at once) or "real" (records and sleeps, interruptible).
	Sleeper string `json:"sleeper"`
}

// Step is one call.
type Step struct {
	Method  string          `json:"method"`
	Args    json.RawMessage `json:"args,omitempty"`
	Options *Options        `json:"options,omitempty"`
	// CancelAfterMS cancels the call that long after it was started.
	CancelAfterMS *int `json:"cancel_after_ms,omitempty"`
	// Print asks for every printed form of the step's error, or of the client in client.print.
	Print bool `json:"print,omitempty"`
}

// Options are per-request options.
type Options struct {
	IdempotencyKey *string `json:"idempotency_key,omitempty"`
	// IdempotencyKeyFromStep takes the key that the error of an earlier step (from 0) exposes.
	IdempotencyKeyFromStep *int `json:"idempotency_key_from_step,omitempty"`
	// TimeoutMS limits each attempt, DeadlineMS the call as a whole.
	TimeoutMS  *int              `json:"timeout_ms,omitempty"`
	DeadlineMS *int              `json:"deadline_ms,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
}

// Expect is what must come of a vector: one matcher per step's result, and one on the Wire.
type Expect struct {
	Steps []json.RawMessage `json:"steps,omitempty"`
	Wire  json.RawMessage   `json:"wire,omitempty"`
}

// Difference replaces members of Expect, or says why a language cannot run the vector.
type Difference struct {
	// Why explains the difference; it is required.
	Why   string            `json:"why"`
	Skip  bool              `json:"skip,omitempty"`
	Steps []json.RawMessage `json:"steps,omitempty"`
	Wire  json.RawMessage   `json:"wire,omitempty"`
}

// Load reads the vectors, in the order of file names and of the files. A member that it does not know is an error.
func Load() ([]Vector, error) {
	names, err := fs.Glob(vectorFiles, "vectors/*.json")
	if err != nil {
		return nil, err
	}
	var all []Vector
	seen := map[string]bool{}
	for _, name := range names {
		data, err := vectorFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var file []Vector
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&file); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		for _, v := range file {
			v.Group = name[len("vectors/") : len(name)-len(".json")]
			if err := v.complete(); err != nil {
				return nil, fmt.Errorf("reading %s: %s: %w", name, v.ID, err)
			}
			if seen[v.ID] {
				return nil, fmt.Errorf("reading %s: %s is there twice", name, v.ID)
			}
			seen[v.ID] = true
			all = append(all, v)
		}
	}
	return all, nil
}

// The values of every vector that does not set its own. The clock shows Tue, 14 Nov 2023 22:13:20 GMT.
const (
	defaultAPIKey  = "apk_test_conformanceKEYMARKER0123456789"
	defaultClockMS = 1_700_000_000_000
)

func (v *Vector) complete() error {
	if v.ID == "" || len(v.Cases) == 0 || v.About == "" || len(v.Steps) == 0 {
		return fmt.Errorf("id, cases, about and steps are required")
	}
	if v.Client.APIKey == "" {
		v.Client.APIKey = defaultAPIKey
	}
	if v.Client.ClockMS == 0 {
		v.Client.ClockMS = defaultClockMS
	}
	if v.Client.Sleeper == "" {
		v.Client.Sleeper = "fake"
	}
	if len(v.Expect.Steps) != len(v.Steps) {
		return fmt.Errorf("%d steps, but %d expectations", len(v.Steps), len(v.Expect.Steps))
	}
	if v.Server != nil && v.Expect.Wire == nil {
		return fmt.Errorf("nothing is expected of the wire")
	}
	for _, language := range slices.Sorted(maps.Keys(v.ByLanguage)) {
		d := v.ByLanguage[language]
		if d.Why == "" || (d.Steps != nil && len(d.Steps) != len(v.Steps)) {
			return fmt.Errorf("by_language %s: no reason, or not one expectation per step", language)
		}
	}
	return nil
}

// expectation is what holds for a language's variant; skip is the reason why it does not run the vector.
func (v *Vector) expectation(language, variant string) (want Expect, skip string) {
	want = v.Expect
	for _, name := range []string{language, language + "/" + variant} {
		d, ok := v.ByLanguage[name]
		if !ok {
			continue
		}
		if d.Skip {
			return want, d.Why
		}
		if d.Steps != nil {
			want.Steps = d.Steps
		}
		if d.Wire != nil {
			want.Wire = d.Wire
		}
	}
	return want, ""
}
