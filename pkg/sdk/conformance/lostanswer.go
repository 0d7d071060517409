package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Stack is what this package needs of a running local stack's stack.json.
type Stack struct {
	URLs struct {
		PaymentAPI string `json:"payment_api"`
	} `json:"urls"`
	Postgres map[string]string `json:"postgres"`
	Demo     struct {
		APIKeyTest string `json:"api_key_test"`
	} `json:"demo"`
}

// ReadStack reads a stack.json.
func ReadStack(path string) (Stack, error) {
	var s Stack
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// LostAnswer is the name of the end-to-end case in the table.
const LostAnswer = "end-to-end/lost-answer"

// JudgeLostAnswer has a runner pay on a running stack through a proxy that swallows the answer, and then again with the
// exposed key: there must be one intent, and one charge in the sandbox's ledger.
func JudgeLostAnswer(ctx context.Context, stack Stack, language, variant string, runner *Runner) Verdict {
	verdict := Verdict{Vector: LostAnswer, Language: language, Variant: variant}
	if err := lostAnswer(ctx, stack, language+variant, runner); err != nil {
		verdict.Wrong = []string{err.Error()}
	}
	return verdict
}

func lostAnswer(ctx context.Context, stack Stack, name string, runner *Runner) error {
	upstream, err := url.Parse(stack.URLs.PaymentAPI)
	if err != nil {
		return err
	}
	proxy, err := startCuttingProxy(ctx, upstream.Host)
	if err != nil {
		return err
	}
	defer proxy.Close()
	reference := fmt.Sprintf("conformance-%s-%d", name, time.Now().UnixNano())
	create := json.RawMessage(fmt.Sprintf(`{"amount":1999,"currency":"EUR","payment_method":"pm_card_visa","confirm":true,"merchant_reference":%q}`, reference))
	first := 0
	result, err := runner.Run(ctx, Job{
		Vector: LostAnswer,
		Client: Client{BaseURL: "http://" + proxy.listener.Addr().String(), APIKey: stack.Demo.APIKeyTest, ClockMS: time.Now().UnixMilli(), Sleeper: "real"},
		Steps: []Step{
			{Method: "payment_intents.create", Args: create},
			{Method: "payment_intents.create", Args: create, Options: &Options{IdempotencyKeyFromStep: &first}},
			{Method: "payment_intents.list", Args: json.RawMessage(fmt.Sprintf(`{"merchant_reference":%q}`, reference))},
		},
	})
	if err != nil {
		return err
	}
	if len(result.Steps) != 3 {
		return fmt.Errorf("the runner answered %d steps of 3", len(result.Steps))
	}
	var paid struct {
		OK struct {
			ID string `json:"id"`
		} `json:"ok"`
	}
	if err := json.Unmarshal(result.Steps[1], &paid); err != nil {
		return err
	}
	m := matcher{}
	for i, text := range []string{
		`{"error":{"kind":"connection","code":"connection_error","attempts":1,"idempotency_key":{"$uuid4":true}}}`,
		`{"ok":{"status":"succeeded","amount":1999}}`,
		fmt.Sprintf(`{"ok":{"data":[{"id":%q,"status":"succeeded"}],"has_more":false}}`, paid.OK.ID),
	} {
		want, err := decode([]byte(text))
		if err != nil {
			return err
		}
		got, err := decode(result.Steps[i])
		if err != nil {
			return err
		}
		m.match(fmt.Sprintf("steps[%d]", i), want, got, true)
	}
	if n := proxy.cut.Load(); n != 1 {
		m.fail("proxy", "swallowed %d answers, want 1", n)
	}
	charges, err := countCharges(ctx, stack.Postgres["owner"], reference)
	if err != nil {
		return err
	}
	if charges != "1" {
		m.fail("ledger", "has %s charges, want 1", charges)
	}
	if len(m.wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(m.wrong, "; "))
	}
	return nil
}

// countCharges asks the sandbox's ledger. psql is there wherever the local stack's Postgres is.
func countCharges(ctx context.Context, dsn, reference string) (string, error) {
	const query = `SELECT count(*) FROM apipay.sandbox_charges c JOIN apipay.payment_attempts a ON a.id = c.attempt_id
		JOIN apipay.payment_intents p ON p.id = a.payment_intent_id
		WHERE p.merchant_reference = :'reference' AND c.kind = 'charge' AND c.status = 'succeeded'`
	cmd := exec.CommandContext(ctx, "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "reference="+reference)
	// Neither the DSN's password nor the query is shown in the process list.
	cmd.Stdin = strings.NewReader(query)
	cmd.Env = append(os.Environ(), environmentOf(dsn)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("counting the charges: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func environmentOf(dsn string) []string {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil
	}
	password, _ := u.User.Password()
	return []string{
		"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=" + u.User.Username(), "PGPASSWORD=" + password,
		"PGDATABASE=" + strings.TrimPrefix(u.Path, "/"),
	}
}

// cuttingProxy passes everything on, but the answer to the first request: it waits for its first byte, when the work is
// done, and then closes the client's connection.
type cuttingProxy struct {
	listener net.Listener
	requests atomic.Int64
	cut      atomic.Int64
	group    sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn
}

func startCuttingProxy(ctx context.Context, upstream string) (*cuttingProxy, error) {
	listener, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	p := &cuttingProxy{listener: listener}
	p.group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() {
				defer client.Close()
				server, err := (&net.Dialer{}).DialContext(ctx, "tcp", upstream)
				if err != nil {
					return
				}
				defer server.Close()
				p.mu.Lock()
				p.open = append(p.open, client, server)
				p.mu.Unlock()
				p.pass(client, server)
			})
		}
	})
	return p, nil
}

func (p *cuttingProxy) pass(client, server net.Conn) {
	in := bufio.NewReader(client)
	answering := false
	for {
		var head Request
		request, err := readRequest(in, func(r Request) int { head = r; return 0 })
		if err != nil {
			return
		}
		framing := ""
		if len(head.Header("Transfer-Encoding")) > 0 {
			// The body was taken out of its chunks.
			framing = fmt.Sprintf("%x\r\n", len(request.body))
			if len(request.body) > 0 {
				request.body = append(request.body, "\r\n0\r\n\r\n"...)
			} else {
				framing = "0\r\n\r\n"
			}
		}
		if _, err := server.Write(append([]byte(head.Raw+framing), request.body...)); err != nil {
			return
		}
		if p.requests.Add(1) == 1 {
			if _, err := server.Read(make([]byte, 1)); err == nil {
				p.cut.Add(1)
			}
			return
		}
		if !answering {
			answering = true
			p.group.Go(func() {
				_, _ = io.Copy(client, server)
				client.Close()
			})
		}
	}
}

// Close ends every connection and waits for them.
func (p *cuttingProxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}
