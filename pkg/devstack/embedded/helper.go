// Package embedded runs a Postgres server or a broker for the life of one process: a test's, or a command's. Each runs under
// a helper, which is this same program started again; it ends with a pipe that the kernel closes when the process dies, so
// nothing stays behind however the process ends, and nothing of it shows up as a goroutine of the test.
package embedded

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// envKind makes a start of this program a helper; its value is the kind of service.
const envKind = "APIPAY_DEVSTACK_HELPER"

// Kind is what a helper runs.
type Kind string

// The kinds of service; each answers with the address to connect to.
const (
	Postgres       Kind = "postgres"        // a superuser's URI
	Broker         Kind = "broker"          // host:port
	DockerPostgres Kind = "docker-postgres" // a superuser's URI
	DockerBroker   Kind = "docker-broker"   // host:port
	ApacheKafka    Kind = "apache-kafka"    // host:port; fetched through Maven
)

// startTimeout covers a first fetch of Postgres or of an image.
const startTimeout = 3 * time.Minute

var services = map[Kind]func(context.Context, io.Writer) (address string, stop func(), err error){
	Postgres:       servePostgres,
	Broker:         serveBroker,
	DockerPostgres: serveDockerPostgres,
	DockerBroker:   serveDockerBroker,
	ApacheKafka:    serveApacheKafka,
}

// init turns the process into a helper before any main or TestMain runs.
func init() {
	kind := os.Getenv(envKind)
	if kind == "" {
		return
	}
	// Children that die with their parent die with the thread that started them: keep the main goroutine on its thread.
	runtime.LockOSThread()
	serve, ok := services[Kind(kind)]
	if !ok {
		fmt.Printf("error no service of kind %q\n", kind)
		os.Exit(2)
	}
	os.Exit(help(serve))
}

func help(serve func(context.Context, io.Writer) (string, func(), error)) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
		cancel() // the process died while we were starting
	}()
	address, stop, err := serve(ctx, os.Stderr)
	if err != nil {
		fmt.Printf("error %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return 1
	}
	defer stop()
	fmt.Printf("ready %s\n", address)
	_ = os.Stdout.Close()
	<-gone
	return 0
}

// held keeps the pipes to helpers reachable: a collected file is a closed one, which would end the helper.
var held sync.Map

// Start runs a service until stop is called or this process ends, and returns its address.
func Start(kind Kind) (address string, stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	hold, release, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	answer, say, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	defer answer.Close()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), envKind+"="+string(kind))
	cmd.Stdin, cmd.Stdout = hold, say
	// Its own session: a Ctrl-C for the tests is not for the server, which they may still need while they end. No standard
	// error: go test would wait for whoever holds it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	hold.Close()
	say.Close()
	if err != nil {
		release.Close()
		return "", nil, err
	}
	held.Store(release, nil)
	stop = func() {
		held.Delete(release)
		release.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(answer).ReadString('\n')
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err == nil && word == "ready" {
		return rest, stop, nil
	}
	stop()
	if word == "error" {
		return "", nil, fmt.Errorf("starting %s: %s", kind, rest)
	}
	return "", nil, fmt.Errorf("starting %s: its helper ended without an answer", kind)
}
