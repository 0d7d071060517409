package apipay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"apipay.io/hub/pkg/sdk/go/internal/retry"
)

const (
	// Version is the SDK's version, sent in User-Agent.
	Version = "1.0.0"
	// DefaultBaseURL is where ApiPay is reached unless WithBaseURL says otherwise.
	DefaultBaseURL = "https://api.apipay.io"

	defaultTimeout        = 30 * time.Second
	defaultConnectTimeout = 10 * time.Second
	defaultMaxRetries     = 2
)

// Client calls ApiPay with one API key. It is safe for use by several goroutines; make one and keep it, since it holds
// the connections.
type Client struct {
	PaymentIntents   *PaymentIntents
	Refunds          *Refunds
	WebhookEndpoints *WebhookEndpoints
	Events           *Events

	core *core
}

// core is what the services share.
type core struct {
	baseURL string
	// authorization is a function because fmt prints a function's address, where it would print a text.
	authorization  func() string
	timeout        time.Duration
	connectTimeout time.Duration
	maxRetries     int
	now            func() time.Time
	sleep          func(context.Context, time.Duration) error
	random         func() float64
	base           *http.Transport
	transport      *http.Transport
}

// Option sets an option of a client.
type Option func(*core) error

// WithBaseURL sets the address of ApiPay, e.g. that of a local stack. A path in it is kept.
func WithBaseURL(address string) Option {
	return func(c *core) error {
		u, err := url.Parse(address)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return errors.New("the base URL must be http(s)://host[:port][/path]")
		}
		c.baseURL = strings.TrimRight(address, "/")
		return nil
	}
}

// WithTimeout limits each attempt, from connecting to the last byte of the answer; default 30 s. The context limits the
// call as a whole.
func WithTimeout(d time.Duration) Option { return positive(d, func(c *core) { c.timeout = d }) }

// WithConnectTimeout limits connecting; default 10 s.
func WithConnectTimeout(d time.Duration) Option {
	return positive(d, func(c *core) { c.connectTimeout = d })
}

func positive(d time.Duration, set func(*core)) Option {
	return func(c *core) error {
		if d <= 0 {
			return errors.New("a timeout must be positive")
		}
		set(c)
		return nil
	}
}

// WithMaxRetries sets how often a GET is repeated at most; default 2, 0 for never. A POST is never repeated.
func WithMaxRetries(n int) Option {
	return func(c *core) error {
		if n < 0 {
			return errors.New("maxRetries must not be negative")
		}
		c.maxRetries = n
		return nil
	}
}

// WithClock sets the clock that Retry-After dates are compared with.
func WithClock(now func() time.Time) Option {
	return func(c *core) error { c.now = now; return nil }
}

// WithSleeper sets how a wait is waited. It returns the context's error if that ends first.
func WithSleeper(sleep func(context.Context, time.Duration) error) Option {
	return func(c *core) error { c.sleep = sleep; return nil }
}

// WithRandom sets the source of jitter: numbers in [0,1). Keys do not come from it.
func WithRandom(random func() float64) Option {
	return func(c *core) error { c.random = random; return nil }
}

// WithTransport sets proxy, TLS roots and dialer. A copy is used, with what would send a request twice switched off:
// HTTP/2 is off in it.
func WithTransport(t *http.Transport) Option {
	return func(c *core) error { c.base = t; return nil }
}

// New makes a client for an API key, "apk_test_..." or "apk_live_...".
func New(apiKey string, options ...Option) (*Client, error) {
	if apiKey == "" || strings.Trim(apiKey, visibleASCII) != "" {
		return nil, refusal("the API key is empty or has characters that no key has")
	}
	c := &core{
		baseURL:        DefaultBaseURL,
		authorization:  func() string { return "Bearer " + apiKey },
		timeout:        defaultTimeout,
		connectTimeout: defaultConnectTimeout,
		maxRetries:     defaultMaxRetries,
		now:            time.Now,
		sleep:          sleep,
		random:         retry.Random,
	}
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, refusal(err.Error())
		}
	}
	c.transport = newTransport(c.base, c.connectTimeout)
	return &Client{
		PaymentIntents:   &PaymentIntents{c},
		Refunds:          &Refunds{c},
		WebhookEndpoints: &WebhookEndpoints{c},
		Events:           &Events{c},
		core:             c,
	}, nil
}

// Close closes the client's idle connections.
func (c *Client) Close() { c.core.transport.CloseIdleConnections() }

func (c Client) String() string {
	if c.core == nil {
		return "apipay.Client{}"
	}
	return "apipay.Client{" + c.core.baseURL + "}"
}

// Format writes String for every verb: the API key is never printed.
func (c Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String.
func (c Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String.
func (c Client) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
