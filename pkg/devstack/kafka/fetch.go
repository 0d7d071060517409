// Package kafka runs Apache Kafka on this machine, without Docker: its jars come through Maven, each node is one Java
// process (KRaft, no ZooKeeper). Tests and benchmarks use it where the embedded broker would prove too little.
package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed pom.xml
var pom []byte

// minJava is the oldest release that Kafka 4's broker runs on.
const minJava = 17

// Installation is a folder of Kafka's jars and a Java to run them.
type Installation struct {
	java string
	libs string
}

// Find answers the jars that pom.xml names, fetched by Maven the first time into the user's cache.
func Find(ctx context.Context, progress io.Writer) (Installation, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return Installation{}, fmt.Errorf("apache kafka needs Java %d or later: %w", minJava, err)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return Installation{}, err
	}
	sum := sha256.Sum256(pom)
	libs := filepath.Join(base, "apipay", "kafka-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(filepath.Dir(libs), 0o755); err != nil { //nolint:gosec // programs, no secrets
		return Installation{}, err
	}
	unlock, err := lock(libs + ".lock")
	if err != nil {
		return Installation{}, err
	}
	defer unlock()
	installation := Installation{java: java, libs: libs}
	if _, err := os.Stat(libs); err == nil {
		return installation, nil
	}
	fmt.Fprintln(progress, "fetching Apache Kafka through Maven (once)")
	return installation, fetch(ctx, libs)
}

// fetch fills a folder beside libs and then moves it there, so that one that is there is whole.
func fetch(ctx context.Context, libs string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("apache kafka is fetched through Maven: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(libs), "kafka-fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(work, "libs"))
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("fetching Apache Kafka: %w: %s", err, tail(string(out))))
	}
	return os.Rename(filepath.Join(work, "libs"), libs)
}

// command is a Java program with Kafka's jars on its class path.
func (i Installation) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, i.java, append([]string{"-cp", filepath.Join(i.libs, "*")}, args...)...)
}

// lock takes an exclusive lock that the kernel gives back when the process ends.
func lock(path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

func tail(text string) string {
	text = strings.TrimSpace(text)
	return text[max(0, len(text)-1000):]
}
