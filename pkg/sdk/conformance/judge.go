package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// Verdict is a vector's outcome in one language's variant.
type Verdict struct {
	Vector   string
	Language string
	Variant  string
	// Skipped is why the language cannot run the vector; such a vector is not counted.
	Skipped string
	// Wrong lists what differs; empty means that it passed.
	Wrong []string
}

// Passed says that everything was as expected.
func (v Verdict) Passed() bool { return v.Skipped == "" && len(v.Wrong) == 0 }

// Judge runs one vector on a runner and compares.
func Judge(ctx context.Context, v Vector, language, variant string, runner *Runner) Verdict {
	verdict := Verdict{Vector: v.ID, Language: language, Variant: variant}
	want, skip := v.expectation(language, variant)
	if skip != "" {
		verdict.Skipped = skip
		return verdict
	}
	wrong, err := judge(ctx, v, want, runner)
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	verdict.Wrong = wrong
	return verdict
}

func judge(ctx context.Context, v Vector, want Expect, runner *Runner) ([]string, error) {
	job := Job{Vector: v.ID, Client: v.Client, Steps: append([]Step(nil), v.Steps...)}
	// Vectors without a network get an address where nothing listens, since a client must have one.
	job.Client.BaseURL = "http://127.0.0.1:9"
	for i := range job.Steps {
		args, err := expandArgs(job.Steps[i].Args)
		if err != nil {
			return nil, fmt.Errorf("expanding the arguments of step %d: %w", i, err)
		}
		job.Steps[i].Args = args
	}
	var server, second *Server
	if v.Server != nil {
		var err error
		if server, second, err = startServers(ctx, v.Server); err != nil {
			return nil, fmt.Errorf("starting the server: %w", err)
		}
		if server != nil {
			defer server.Close()
			job.Client.BaseURL = server.BaseURL()
		}
		if second != nil {
			defer second.Close()
		}
		if v.Server.Mode == ModeUnknownHost {
			// RFC 6761: .invalid never resolves.
			job.Client.BaseURL = "http://api.apipay.invalid"
		}
		job.Client.BaseURL += v.Server.BasePath
	}
	result, err := runner.Run(ctx, job)
	if err != nil {
		return nil, err
	}
	m := matcher{}
	wire := map[string]any{}
	if v.Server != nil {
		if v.Server.SettleMS > 0 {
			time.Sleep(time.Duration(v.Server.SettleMS) * time.Millisecond)
		}
		if server != nil {
			m.wire = server.Snapshot()
		}
		wire = m.wire.value()
		if second != nil {
			wire["second"] = second.Snapshot().value()
		}
	}
	if len(result.Steps) != len(v.Steps) {
		return nil, fmt.Errorf("the runner answered %d steps of %d", len(result.Steps), len(v.Steps))
	}
	for i, raw := range want.Steps {
		expected, err := decode(expandExpectation(raw, job.Steps[i].Args))
		if err != nil {
			return nil, fmt.Errorf("reading the expectation of step %d: %w", i, err)
		}
		got, err := decode(result.Steps[i])
		if err != nil {
			return nil, fmt.Errorf("reading the result of step %d: %w", i, err)
		}
		m.match(fmt.Sprintf("steps[%d]", i), expected, got, true)
	}
	if v.Server != nil {
		expected, err := decode(want.Wire)
		if err != nil {
			return nil, fmt.Errorf("reading the expectation of the wire: %w", err)
		}
		m.match("wire", expected, wire, true)
	}
	return m.wrong, nil
}

// expandExpectation lets the expected result of webhooks.sign name a signature as its arguments do.
func expandExpectation(want, args json.RawMessage) []byte {
	if !macPattern.Match(want) {
		return want
	}
	var a verifyArgs
	if json.Unmarshal(args, &a) != nil {
		return want
	}
	expanded, err := expandArgs(json.RawMessage(fmt.Sprintf(`{"payload_base64":%q,"want":%s}`, a.PayloadBase64, want)))
	if err != nil {
		return want
	}
	var out struct {
		Want json.RawMessage `json:"want"`
	}
	if json.Unmarshal(expanded, &out) != nil {
		return want
	}
	return out.Want
}

func startServers(ctx context.Context, script *Script) (server, second *Server, err error) {
	if script.Mode == ModeUnknownHost {
		return nil, nil, nil
	}
	secondURL := ""
	if script.Second {
		tempting := Answer{Status: 200, JSON: json.RawMessage(`{"id":"pi_from_the_other_host","object":"payment_intent"}`)}
		if second, err = StartServer(ctx, ModePlain, []Answer{tempting, tempting, tempting}); err != nil {
			return nil, nil, err
		}
		secondURL = second.BaseURL()
	}
	if server, err = StartServer(ctx, script.Mode, nil); err != nil {
		return nil, second, err
	}
	server.answers = expandAnswers(script.Answers, server.BaseURL(), secondURL)
	return server, second, nil
}

// value is the wire as matchers see it; README.md lists its members.
func (w Wire) value() map[string]any {
	requests := make([]any, len(w.Requests))
	keys := map[string]bool{}
	for i, r := range w.Requests {
		requests[i] = r.value()
		for _, key := range r.Header("Idempotency-Key") {
			keys[key] = true
		}
	}
	return map[string]any{
		"requests":       number(len(w.Requests)),
		"connections":    number(w.Connections),
		"open_max":       number(w.OpenMax),
		"bytes_sent":     number(w.BytesSent),
		"bytes_received": number(w.BytesReceived),
		"distinct_keys":  number(len(keys)),
		"request":        requests,
	}
}

func (r Request) value() map[string]any {
	headers := map[string]any{}
	for _, h := range r.Headers {
		name := strings.ToLower(h[0])
		if values := r.Header(name); len(values) == 1 {
			headers[name] = values[0]
		} else {
			headers[name] = asList(values)
		}
	}
	path, query, _ := strings.Cut(r.Target, "?")
	parameters := map[string]any{}
	if parsed, err := url.ParseQuery(query); err == nil {
		for name, values := range parsed {
			if len(values) == 1 {
				parameters[name] = values[0]
			} else {
				parameters[name] = asList(values)
			}
		}
	}
	value := map[string]any{
		"method": r.Method, "target": r.Target, "path": path, "query": parameters,
		"headers": headers, "body": string(r.Body), "body_length": number(len(r.Body)),
		"connection": number(r.Connection), "reused": r.Reused,
	}
	if body, err := decode(r.Body); err == nil {
		value["json"] = body
	}
	return value
}

func asList(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

func number[N int | int64](n N) json.Number { return json.Number(fmt.Sprint(n)) }

// decode keeps numbers as they are written: amounts are judged to the last digit.
func decode(data []byte) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// PrintJob writes the job line of one vector as a runner reads it, with an address where nothing listens.
func PrintJob(w io.Writer, vectors []Vector, id string) error {
	for _, v := range vectors {
		if v.ID != id {
			continue
		}
		job := Job{Vector: v.ID, Client: v.Client, Steps: v.Steps}
		job.Client.BaseURL = "http://127.0.0.1:9"
		for i := range job.Steps {
			args, err := expandArgs(job.Steps[i].Args)
			if err != nil {
				return err
			}
			job.Steps[i].Args = args
		}
		return json.NewEncoder(w).Encode(job)
	}
	return fmt.Errorf("there is no vector %q", id)
}
