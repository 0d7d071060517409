package kafka

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed Partitions.java
var partitionsSource []byte

// Partitions answers which of the partitions Kafka's own Java producer sends each key to.
func (i Installation) Partitions(ctx context.Context, keys []string, partitions int) ([]int, error) {
	dir, err := os.MkdirTemp("", "kafka-partitions-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "Partitions.java")
	if err := os.WriteFile(source, partitionsSource, 0o600); err != nil {
		return nil, err
	}
	cmd := i.command(ctx, source, strconv.Itoa(partitions))
	cmd.Stdin = strings.NewReader(strings.Join(keys, "\n") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("asking the Java client: %w: %s", err, tail(errs.String()))
	}
	var chosen []int
	for line := range strings.Lines(out.String()) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("the Java client's answer: %w", err)
		}
		chosen = append(chosen, n)
	}
	return chosen, nil
}
