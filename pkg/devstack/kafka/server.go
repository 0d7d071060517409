package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

// clusterID is any; nodes of one cluster share it.
const clusterID = "YXBpcGF5LWxvY2FsLTAwMQ"

// Config is one node.
type Config struct {
	// Dir holds the node's settings, data and log; a node that is started again finds its data there.
	Dir string
	// Node counts from 1. Node 1 is the controller too, and the others' controller.
	Node int
	// Port is where clients connect, on 127.0.0.1.
	Port int
	// ControllerPort is node 1's.
	ControllerPort int
	// Advertise is the address that clients are told; empty: the listener's own. A proxy stands there.
	Advertise string
	// Settings are more lines of server.properties.
	Settings map[string]string
	// Heap is Java's -Xmx; empty: 512m.
	Heap string
}

// Addr is the listener's address.
func (c Config) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)) }

// LogPath is where the node's output goes.
func (c Config) LogPath() string { return filepath.Join(c.Dir, "log") }

// Command prepares the node's folder and answers its process, not yet started. SIGTERM stops it in order.
func (i Installation) Command(ctx context.Context, c Config) (*exec.Cmd, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // a test's data
		return nil, err
	}
	properties := filepath.Join(c.Dir, "server.properties")
	if err := os.WriteFile(properties, c.properties(), 0o600); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "data", "meta.properties")); errors.Is(err, os.ErrNotExist) {
		format := i.command(ctx, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties)
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("formatting Kafka's data: %w: %s", err, tail(string(out)))
		}
	}
	heap := c.Heap
	if heap == "" {
		heap = "512m"
	}
	cmd := exec.Command(i.java, "-Xmx"+heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(i.libs, "*"), "kafka.Kafka", properties)
	cmd.Dir = c.Dir
	return cmd, nil
}

func (c Config) properties() []byte {
	advertise := c.Advertise
	if advertise == "" {
		advertise = c.Addr()
	}
	roles, listeners := "broker", "PLAINTEXT://"+c.Addr()
	controller := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.ControllerPort))
	if c.Node == 1 {
		roles, listeners = "broker,controller", listeners+",CONTROLLER://"+controller
	}
	settings := map[string]string{
		"process.roles":                            roles,
		"node.id":                                  strconv.Itoa(c.Node),
		"controller.quorum.voters":                 "1@" + controller,
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                listeners,
		"advertised.listeners":                     "PLAINTEXT://" + advertise,
		"listener.security.protocol.map":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                                 filepath.Join(c.Dir, "data"),
		"auto.create.topics.enable":                "false",
		"offsets.topic.replication.factor":         "1",
		"offsets.topic.num.partitions":             "4",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		"group.min.session.timeout.ms":             "1000",
	}
	maps.Copy(settings, c.Settings)
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&out, "%s=%s\n", name, settings[name])
	}
	return out.Bytes()
}

// Node is a running node.
type Node struct {
	Config
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start runs a node and waits until it serves. It ends with this process, however that ends.
func (i Installation) Start(ctx context.Context, c Config) (*Node, error) {
	cmd, err := i.Command(ctx, c)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &Node{Config: c, cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(n.exited)
		_ = cmd.Wait()
	}()
	if err := WaitReady(ctx, c.Addr(), n.exited); err != nil {
		n.Kill()
		body, _ := os.ReadFile(c.LogPath())
		return nil, fmt.Errorf("%w: %s", err, tail(string(body)))
	}
	return n, nil
}

// Kill ends the node as a power cut would.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // it may have ended
	<-n.exited
}

// WaitReady returns when the node at addr answers, and with an error when ctx ends or exited is closed before.
func WaitReady(ctx context.Context, addr string, exited <-chan struct{}) error {
	for {
		if err := answers(ctx, addr); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return fmt.Errorf("waiting for Kafka on %s: %w: %w", addr, ctx.Err(), err)
		}
		select {
		case <-exited:
			return fmt.Errorf("the Kafka on %s ended while starting", addr)
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(addr), Transport: transport}
	_, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{"unknown"}})
	return err
}
