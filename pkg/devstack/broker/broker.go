// Package broker is the local Kafka-compatible broker: franz-go's kfake, with the three topics of the hub.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Partitions is the number that each topic is made with.
const Partitions = 16

// Topics are the topics that the hub writes.
var Topics = []string{"apipay.payment-events.v1", "apipay.outbound-webhooks.v1", "apipay.audit.v1"}

// Config says how the broker runs.
type Config struct {
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// DataDir keeps records, groups and offsets, each batch synced before it is acknowledged. Empty keeps them in memory.
	DataDir string
	// Advertise is the address that clients are told; empty: the listener's own. A proxy stands there.
	Advertise string
}

// Broker is a running broker.
type Broker struct {
	cluster *kfake.Cluster
}

// Start listens and serves until Close.
func Start(cfg Config) (*Broker, error) {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("apipay-local"),
		kfake.DefaultNumPartitions(Partitions),
		kfake.SeedTopics(Partitions, Topics...),
		// Tests let members of a group die and want the others to take over soon.
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			listener, err := net.Listen(network, net.JoinHostPort("127.0.0.1", port))
			if err != nil || cfg.Advertise == "" {
				return listener, err
			}
			advertised, err := net.ResolveTCPAddr(network, cfg.Advertise)
			return &advertisedListener{listener, advertised}, err
		}),
	}
	if cfg.Port != 0 {
		opts = append(opts, kfake.Ports(cfg.Port))
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir), kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting the broker on port %s: %w", strconv.Itoa(cfg.Port), err)
	}
	return &Broker{cluster: cluster}, nil
}

// advertisedListener tells another address than its own.
type advertisedListener struct {
	net.Listener
	advertised net.Addr
}

func (l *advertisedListener) Addr() net.Addr { return l.advertised }

// Addrs are the addresses to give to clients.
func (b *Broker) Addrs() []string { return b.cluster.ListenAddrs() }

// Close stops serving and writes what is not on disk yet.
func (b *Broker) Close() { b.cluster.Close() }

// CreateTopics makes the topics on any broker, where they are missing.
func CreateTopics(ctx context.Context, address string) error {
	client := kafka.Client{Addr: kafka.TCP(address)}
	request := kafka.CreateTopicsRequest{}
	for _, topic := range Topics {
		request.Topics = append(request.Topics, kafka.TopicConfig{Topic: topic, NumPartitions: Partitions, ReplicationFactor: 1})
	}
	response, err := client.CreateTopics(ctx, &request)
	if err != nil {
		return err
	}
	for topic, err := range response.Errors {
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return fmt.Errorf("topic %s: %w", topic, err)
		}
	}
	return nil
}
