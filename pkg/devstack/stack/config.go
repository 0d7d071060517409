// Package stack runs the whole hub on one machine: Postgres, the broker and the four services, each a process of its own
// under one supervisor, described by stack.json in the stack's folder.
package stack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of the processes, as the command line takes them.
const (
	Postgres          = "postgres"
	Broker            = "broker"
	PaymentAPI        = "payment-api"
	AdminAPI          = "admin-api"
	OutboxRelay       = "outbox-relay"
	WebhookDispatcher = "webhook-dispatcher"
)

// Names are all process names, in the order they start.
var Names = []string{Postgres, Broker, PaymentAPI, AdminAPI, OutboxRelay, WebhookDispatcher}

// services are the hub's own processes and the fixed ports of each one's first replica.
var services = []struct {
	name       string
	http, ops  int
	role       string
	needsKafka bool
}{
	{name: PaymentAPI, http: 8080, ops: 8082, role: "apipay_app"},
	{name: AdminAPI, http: 8081, ops: 8083, role: "apipay_admin"},
	{name: OutboxRelay, ops: 8084, role: "apipay_worker", needsKafka: true},
	{name: WebhookDispatcher, ops: 8085, role: "apipay_worker", needsKafka: true},
}

const (
	postgresPort = 15432
	brokerPort   = 19092

	maxPortOffset = 13000
	maxReplicas   = 64
)

// Config says where and how large a stack is.
type Config struct {
	// Dir holds the stack's state (APIPAY_DEV_DIR, default .dev), absolute.
	Dir string
	// BinDir holds the programs that `make build` makes; by default the folder of this program.
	BinDir string
	// PortOffset moves every fixed port (APIPAY_PORT_OFFSET, a multiple of 100 in 0..13000).
	PortOffset int
	// Replicas per service (RELAYS, DISPATCHERS, PAYMENT_APIS; default 1, at most 64).
	Replicas map[string]int
	// Environ is the environment, as os.Environ gives it, whose APIPAY_* are passed on to the services.
	Environ []string
}

// ConfigFromEnv reads the variables named above.
func ConfigFromEnv() (Config, error) {
	program, err := os.Executable()
	if err != nil {
		return Config{}, err
	}
	dir := os.Getenv("APIPAY_DEV_DIR")
	if dir == "" {
		dir = ".dev"
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Config{}, err
	}
	cfg := Config{Dir: dir, BinDir: filepath.Dir(program), Environ: os.Environ(), Replicas: map[string]int{AdminAPI: 1}}
	if text := os.Getenv("APIPAY_PORT_OFFSET"); text != "" {
		cfg.PortOffset, err = strconv.Atoi(text)
		if err != nil || cfg.PortOffset < 0 || cfg.PortOffset > maxPortOffset || cfg.PortOffset%100 != 0 {
			return Config{}, fmt.Errorf("APIPAY_PORT_OFFSET=%s: must be a multiple of 100 from 0 to %d", text, maxPortOffset)
		}
	}
	for variable, service := range map[string]string{
		"RELAYS": OutboxRelay, "DISPATCHERS": WebhookDispatcher, "PAYMENT_APIS": PaymentAPI,
	} {
		cfg.Replicas[service] = 1
		if text := os.Getenv(variable); text != "" {
			count, err := strconv.Atoi(text)
			if err != nil || count < 1 || count > maxReplicas {
				return Config{}, fmt.Errorf("%s=%s: must be a number from 1 to %d", variable, text, maxReplicas)
			}
			cfg.Replicas[service] = count
		}
	}
	return cfg, nil
}

// checkPrograms tells at once what `make build` would have made.
func (c Config) checkPrograms() error {
	for _, name := range []string{PaymentAPI, AdminAPI, OutboxRelay, WebhookDispatcher, "migrate"} {
		if _, err := os.Stat(c.program(name)); err != nil {
			return fmt.Errorf("%s is missing; run `make build`", c.program(name))
		}
	}
	return nil
}

func (c Config) program(name string) string { return filepath.Join(c.BinDir, name) }

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c Config) logPath(name string) string { return c.path("logs", name+".log") }

// checkPorts refuses before anything is started when a fixed port is taken.
func (c Config) checkPorts() error {
	fixed := map[int]string{postgresPort: Postgres, brokerPort: Broker}
	for _, service := range services {
		fixed[service.ops] = service.name + "'s ops port"
		if service.http != 0 {
			fixed[service.http] = service.name
		}
	}
	for port, owner := range fixed {
		port += c.PortOffset
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			return fmt.Errorf("port %d (%s) is in use; stop what uses it, or move this stack with APIPAY_PORT_OFFSET", port, owner)
		}
		listener.Close()
	}
	return nil
}

// freePorts takes n ports that nobody listens on, all different.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		listener, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, err
		}
		defer listener.Close() // held until all are chosen
		addr, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("a TCP listener at %s", listener.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// key is a process name as stack.json writes it.
func key(name string) string { return strings.ReplaceAll(name, "-", "_") }
