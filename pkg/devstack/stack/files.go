package stack

import (
	"encoding/json"
	"os"
	"syscall"
	"time"
)

const (
	stackFile   = "stack.json"
	processFile = "processes.json"
)

// Info is stack.json: all that somebody outside needs to use the running stack. stack.schema.json is its contract.
type Info struct {
	URLs      URLs                         `json:"urls"`
	Postgres  map[string]string            `json:"postgres"` // URI per role: owner, app, worker, admin
	Kafka     Kafka                        `json:"kafka"`
	PIDs      map[string][]int             `json:"pids"` // per name, one entry per replica; 0 does not run
	Processes []ProcessInfo                `json:"processes"`
	Demo      Demo                         `json:"demo"`
	Env       map[string]map[string]string `json:"env"`
}

// URLs are where the replicas serve.
type URLs struct {
	PaymentAPI string              `json:"payment_api"`
	AdminAPI   string              `json:"admin_api"`
	Ops        map[string][]string `json:"ops"`
	Replicas   map[string][]string `json:"replicas"`
}

// Kafka names the broker.
type Kafka struct {
	Brokers []string `json:"brokers"`
}

// ProcessInfo tells what one process does, and how it ended when it does not run.
type ProcessInfo struct {
	Name  string    `json:"name"`
	PID   int       `json:"pid"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	Exit  string    `json:"exit,omitempty"`
	Log   string    `json:"log"`
}

// Demo is a tenant to try things with, its keys with every scope, and staff tokens.
type Demo struct {
	TenantID   string            `json:"tenant_id"`
	TestKey    string            `json:"api_key_test"`
	LiveKey    string            `json:"api_key_live"`
	AdminToken string            `json:"admin_token"`
	Tokens     map[string]string `json:"tokens"`
}

// Info describes the stack as it is now.
func (s *Stack) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info()
}

func (s *Stack) info() Info {
	info := Info{
		URLs:     URLs{Ops: map[string][]string{}, Replicas: map[string][]string{}},
		Postgres: map[string]string{},
		Kafka:    Kafka{Brokers: []string{address(brokerPort + s.cfg.PortOffset)}},
		PIDs:     map[string][]int{},
		Demo: Demo{
			TenantID: s.secrets.Demo.TenantID, TestKey: s.secrets.Demo.TestKey, LiveKey: s.secrets.Demo.LiveKey,
			AdminToken: s.secrets.Tokens["admin"], Tokens: s.secrets.Tokens,
		},
		Env: map[string]map[string]string{},
	}
	for role, password := range s.secrets.RolePasswords {
		info.Postgres[role] = dsn(s.cfg, "apipay_"+role, password)
	}
	for name, env := range s.env {
		info.Env[key(name)] = env
	}
	for _, p := range s.processes {
		state, pid, exit, since := p.view()
		name := key(p.name)
		info.PIDs[name] = append(info.PIDs[name], pid)
		info.Processes = append(info.Processes, ProcessInfo{
			Name: p.label(), PID: pid, State: state, Since: since.UTC().Truncate(time.Millisecond), Exit: exit, Log: p.logPath,
		})
		if p.ops != "" {
			info.URLs.Ops[name] = append(info.URLs.Ops[name], p.ops)
		}
		if p.http != "" {
			info.URLs.Replicas[name] = append(info.URLs.Replicas[name], p.http)
		}
	}
	if urls := info.URLs.Replicas[key(PaymentAPI)]; len(urls) > 0 {
		info.URLs.PaymentAPI = urls[0]
	}
	if urls := info.URLs.Replicas[key(AdminAPI)]; len(urls) > 0 {
		info.URLs.AdminAPI = urls[0]
	}
	return info
}

// processRecord names one process of the operating system for ever: its number may be another's later.
type processRecord struct {
	Name    string         `json:"name"`
	PID     int            `json:"pid"`
	Started uint64         `json:"started"`
	Stop    syscall.Signal `json:"stop"`
}

// write brings the files up to date; the caller holds s.mu. stack.json appears only when the stack is complete.
func (s *Stack) write() error {
	var records []processRecord
	for _, p := range s.processes {
		_, pid, _, _ := p.view()
		if pid == 0 {
			continue
		}
		if stat, err := readStat(pid); err == nil {
			records = append(records, processRecord{Name: p.label(), PID: pid, Started: stat.started, Stop: p.stopWith})
		}
	}
	if err := writeJSON(s.cfg.path(processFile), records); err != nil {
		return err
	}
	if !s.complete {
		return nil
	}
	return writeJSON(s.cfg.path(stackFile), s.info())
}

// InfoPath is where stack.json is.
func InfoPath(cfg Config) string { return cfg.path(stackFile) }

// LogDir is where every process's log is.
func LogDir(cfg Config) string { return cfg.path("logs") }

// ReadInfo reads the stack.json of a running stack.
func ReadInfo(cfg Config) (Info, error) {
	var info Info
	body, err := os.ReadFile(cfg.path(stackFile))
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(body, &info)
}

// leftovers are processes of a stack whose supervisor is gone.
func leftovers(cfg Config) []processRecord {
	body, err := os.ReadFile(cfg.path(processFile))
	if err != nil {
		return nil
	}
	var records, left []processRecord
	if json.Unmarshal(body, &records) != nil {
		return nil
	}
	for _, record := range records {
		if record.alive() {
			left = append(left, record)
		}
	}
	return left
}

func (r processRecord) alive() bool {
	stat, err := readStat(r.PID)
	return err == nil && stat.started == r.Started && stat.state != 'Z'
}
