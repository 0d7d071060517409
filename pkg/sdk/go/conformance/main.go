// Command conformance is the Go SDK's runner of the vectors in pkg/sdk/conformance: one job per line on stdin, one answer
// per line on stdout. The protocol is described there.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	apipay "apipay.io/hub/pkg/sdk/go"
)

type job struct {
	Vector string        `json:"vector"`
	Client clientOptions `json:"client"`
	Steps  []step        `json:"steps"`
}

type clientOptions struct {
	BaseURL          string    `json:"base_url"`
	APIKey           string    `json:"api_key"`
	TimeoutMS        *int      `json:"timeout_ms"`
	ConnectTimeoutMS *int      `json:"connect_timeout_ms"`
	MaxRetries       *int      `json:"max_retries"`
	ClockMS          int64     `json:"clock_ms"`
	Random           []float64 `json:"random"`
	Sleeper          string    `json:"sleeper"`
}

type step struct {
	Method        string          `json:"method"`
	Args          json.RawMessage `json:"args"`
	Options       *stepOptions    `json:"options"`
	CancelAfterMS *int            `json:"cancel_after_ms"`
	Print         bool            `json:"print"`
}

type stepOptions struct {
	IdempotencyKey         *string           `json:"idempotency_key"`
	IdempotencyKeyFromStep *int              `json:"idempotency_key_from_step"`
	TimeoutMS              *int              `json:"timeout_ms"`
	DeadlineMS             *int              `json:"deadline_ms"`
	Headers                map[string]string `json:"headers"`
}

type result struct {
	// OK is json null for a call without a result, and absent for an error.
	OK              *json.RawMessage `json:"ok,omitempty"`
	Error           *errorFields     `json:"error,omitempty"`
	SleepsMS        []float64        `json:"sleeps_ms"`
	ElapsedMS       float64          `json:"elapsed_ms"`
	CancelLatencyMS *float64         `json:"cancel_latency_ms,omitempty"`
	IDs             []string         `json:"ids,omitempty"`
	Printed         []string         `json:"printed,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(in.Bytes()))
		decoder.DisallowUnknownFields()
		var j job
		if err := decoder.Decode(&j); err != nil {
			fmt.Fprintln(os.Stderr, "reading a job:", err)
			os.Exit(1)
		}
		steps, err := run(j)
		if err != nil {
			fmt.Fprintln(os.Stderr, "running a job:", err)
			os.Exit(1)
		}
		if err := out.Encode(map[string]any{"vector": j.Vector, "steps": steps}); err != nil {
			fmt.Fprintln(os.Stderr, "answering:", err)
			os.Exit(1)
		}
	}
}

// session is one job's client and what is recorded of it.
type session struct {
	client *apipay.Client
	now    func() time.Time
	random func() float64
	sleeps []float64
	keys   []string // of the errors of earlier steps
}

func run(j job) ([]result, error) {
	s := &session{now: func() time.Time { return time.UnixMilli(j.Client.ClockMS) }}
	options := []apipay.Option{
		apipay.WithBaseURL(j.Client.BaseURL),
		apipay.WithClock(s.now),
		apipay.WithSleeper(func(ctx context.Context, d time.Duration) error {
			s.sleeps = append(s.sleeps, ms(d))
			if j.Client.Sleeper != "real" {
				return ctx.Err()
			}
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	}
	if len(j.Client.Random) > 0 {
		next := 0
		s.random = func() float64 {
			next++
			return j.Client.Random[(next-1)%len(j.Client.Random)]
		}
		options = append(options, apipay.WithRandom(s.random))
	}
	if n := j.Client.TimeoutMS; n != nil {
		options = append(options, apipay.WithTimeout(time.Duration(*n)*time.Millisecond))
	}
	if n := j.Client.ConnectTimeoutMS; n != nil {
		options = append(options, apipay.WithConnectTimeout(time.Duration(*n)*time.Millisecond))
	}
	if n := j.Client.MaxRetries; n != nil {
		options = append(options, apipay.WithMaxRetries(*n))
	}
	client, err := apipay.New(j.Client.APIKey, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s.client = client
	var results []result
	for _, st := range j.Steps {
		r, err := s.step(st)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func (s *session) step(st step) (result, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options, err := s.options(st.Options)
	if err != nil {
		return result{}, err
	}
	if st.Options != nil && st.Options.DeadlineMS != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(*st.Options.DeadlineMS)*time.Millisecond)
		defer stop()
	}
	s.sleeps = []float64{}
	canceled := make(chan time.Time, 1)
	if st.CancelAfterMS != nil {
		abort := func() { canceled <- time.Now(); cancel() }
		if *st.CancelAfterMS == 0 {
			abort()
		} else {
			timer := time.AfterFunc(time.Duration(*st.CancelAfterMS)*time.Millisecond, abort)
			defer timer.Stop()
		}
	}
	started := time.Now()
	value, ids, callErr := s.call(ctx, st.Method, st.Args, options)
	returned := time.Now()
	r := result{SleepsMS: s.sleeps, ElapsedMS: ms(returned.Sub(started))}
	select {
	case at := <-canceled:
		latency := max(0, ms(returned.Sub(at)))
		r.CancelLatencyMS = &latency
	default:
	}
	key := ""
	if callErr != nil {
		fields, err := fieldsOf(callErr)
		if err != nil {
			return result{}, err
		}
		r.Error, r.IDs, key = fields, ids, fields.IdempotencyKey
	} else {
		raw, err := plainJSON(value)
		if err != nil {
			return result{}, err
		}
		r.OK = &raw
	}
	s.keys = append(s.keys, key)
	if st.Print {
		r.Printed = s.printed(value, callErr)
	}
	return r, nil
}

func (s *session) options(o *stepOptions) ([]apipay.RequestOption, error) {
	if o == nil {
		return nil, nil
	}
	var options []apipay.RequestOption
	if o.IdempotencyKey != nil {
		options = append(options, apipay.WithIdempotencyKey(*o.IdempotencyKey))
	}
	if n := o.IdempotencyKeyFromStep; n != nil {
		if *n >= len(s.keys) {
			return nil, fmt.Errorf("there was no step %d", *n)
		}
		options = append(options, apipay.WithIdempotencyKey(s.keys[*n]))
	}
	if o.TimeoutMS != nil {
		options = append(options, apipay.WithRequestTimeout(time.Duration(*o.TimeoutMS)*time.Millisecond))
	}
	for name, value := range o.Headers {
		options = append(options, apipay.WithHeader(name, value))
	}
	return options, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
