//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connection speaks just enough HTTP/1.1 to cost the machine little beside what it measures.
type connection struct {
	net.Conn
	in   *bufio.Reader
	body []byte
}

func dial(address string) (*connection, error) {
	conn, err := net.Dial("tcp", address) //nolint:noctx // ends with the run
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// roundTrip answers the status and the body, which is valid until the next call.
func (c *connection) roundTrip(request []byte) (status int, body []byte, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, err
			}
		}
	}
	if length < 0 {
		return 0, nil, errors.New("an answer without Content-Length")
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}

// request is the text of one.
func request(method, path, key, idempotencyKey, body string) []byte {
	text := method + " " + path + " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + key + "\r\n"
	if method == "POST" {
		text += "Idempotency-Key: " + idempotencyKey + "\r\n"
		if body != "" {
			text += "Content-Type: application/json\r\n"
		}
		text += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	return []byte(text + "\r\n" + body)
}

var answerID = []byte(`"id":"`)

// idOf is the first id of an answer.
func idOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, answerID)
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(text)
}

// load is what a run measured.
type load struct {
	perSecond float64
	latencies []time.Duration // of what a worker reported
}

func (l load) percentile(p float64) time.Duration {
	if len(l.latencies) == 0 {
		return 0
	}
	slices.Sort(l.latencies)
	return l.latencies[min(len(l.latencies)-1, int(float64(len(l.latencies))*p))]
}

// drive runs once on clients connections, again and again, for the time given.
func drive(t *testing.T, address string, clients int, d time.Duration, once func(c *connection, worker, n int) (time.Duration, error)) load {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var done atomic.Int64
	latencies := make([][]time.Duration, clients)
	errs := make([]error, clients)
	var all sync.WaitGroup
	began := time.Now()
	for worker := range clients {
		all.Go(func() {
			c, err := dial(address)
			if err != nil {
				errs[worker] = err
				return
			}
			defer c.Close()
			for n := 0; ctx.Err() == nil; n++ {
				took, err := once(c, worker, n)
				if err != nil {
					errs[worker] = err
					return
				}
				latencies[worker] = append(latencies[worker], took)
				done.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	require.NoError(t, errors.Join(errs...))
	return load{perSecond: float64(done.Load()) / took.Seconds(), latencies: slices.Concat(latencies...)}
}

// createAndConfirm is the main job, as two requests; the latency is the confirm's.
func createAndConfirm(key, run string) func(*connection, int, int) (time.Duration, error) {
	return func(c *connection, worker, n int) (time.Duration, error) {
		k := fmt.Sprintf("%s-%d-%d", run, worker, n)
		status, body, err := c.roundTrip(request("POST", "/v1/payment-intents", key, "c-"+k, createBody))
		if err != nil || status != 201 {
			return 0, fmt.Errorf("create: %d %s %w", status, body, err)
		}
		confirm := request("POST", "/v1/payment-intents/"+idOf(body)+"/confirm", key, "f-"+k, "")
		began := time.Now()
		status, body, err = c.roundTrip(confirm)
		if err != nil || status != 200 {
			return 0, fmt.Errorf("confirm: %d %s %w", status, body, err)
		}
		return time.Since(began), nil
	}
}

const createBody = `{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa"}`

// read gets one path.
func read(key, path string) func(*connection, int, int) (time.Duration, error) {
	get := request("GET", path, key, "", "")
	return func(c *connection, _, _ int) (time.Duration, error) {
		began := time.Now()
		status, body, err := c.roundTrip(get)
		if err != nil || status != 200 {
			return 0, fmt.Errorf("get: %d %s %w", status, body, err)
		}
		return time.Since(began), nil
	}
}
