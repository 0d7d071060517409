package embedded

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/kafka"
)

// serveApacheKafka runs one node of Apache Kafka with the three topics.
func serveApacheKafka(ctx context.Context, progress io.Writer) (string, func(), error) {
	installation, err := kafka.Find(ctx, progress)
	if err != nil {
		return "", nil, err
	}
	removeStale(os.TempDir())
	dir, err := heldDir(os.TempDir())
	if err != nil {
		return "", nil, err
	}
	node, err := startApacheKafka(ctx, installation, dir)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return node.Addr(), func() {
		node.Kill() // the data is thrown away
		_ = os.RemoveAll(dir)
	}, nil
}

func startApacheKafka(ctx context.Context, installation kafka.Installation, dir string) (*kafka.Node, error) {
	config := kafka.Config{Dir: filepath.Join(dir, "node"), Node: 1, Heap: "1g"}
	for _, port := range []*int{&config.Port, &config.ControllerPort} {
		free, err := freePort()
		if err != nil {
			return nil, err
		}
		*port = free
	}
	node, err := installation.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := broker.CreateTopics(ctx, node.Addr()); err != nil {
		node.Kill()
		return nil, err
	}
	return node, nil
}
