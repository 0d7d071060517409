package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"

	"apipay.io/hub/pkg/devstack/broker"
)

const (
	postgresImage = "postgres:17"
	kafkaImage    = "apache/kafka:3.9.1"
	postgresPort  = "5432/tcp"
	kafkaPort     = "9092/tcp"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func serveDockerPostgres(ctx context.Context, _ io.Writer) (string, func(), error) {
	log.SetDefault(quiet{})
	password := rand.Text()
	postgres, err := testcontainers.Run(ctx, postgresImage,
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": password}),
		testcontainers.WithExposedPorts(postgresPort),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300"),
		// The image starts a first server to set itself up, so the line that says ready comes twice.
		testcontainers.WithWaitStrategy(
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2),
			wait.ForListeningPort(postgresPort)))
	stop := func() { _ = testcontainers.TerminateContainer(postgres) }
	if err != nil {
		stop()
		return "", nil, err
	}
	address, err := postgres.PortEndpoint(ctx, postgresPort, "")
	if err != nil {
		stop()
		return "", nil, err
	}
	uri := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Host: address, Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return uri.String(), stop, nil
}

func serveDockerBroker(ctx context.Context, _ io.Writer) (string, func(), error) {
	log.SetDefault(quiet{})
	// A broker tells its clients its own address, so the port on the host must be known before it starts.
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	exposed, err := network.ParsePort(kafkaPort)
	if err != nil {
		return "", nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	kafka, err := testcontainers.Run(ctx, kafkaImage,
		testcontainers.WithEnv(map[string]string{
			"KAFKA_NODE_ID":                                  "1",
			"KAFKA_PROCESS_ROLES":                            "broker,controller",
			"KAFKA_CONTROLLER_QUORUM_VOTERS":                 "1@localhost:9093",
			"KAFKA_CONTROLLER_LISTENER_NAMES":                "CONTROLLER",
			"KAFKA_LISTENERS":                                "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093",
			"KAFKA_ADVERTISED_LISTENERS":                     "PLAINTEXT://" + address,
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":         "1",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
			"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":            "1",
			"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":         "0",
			"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS":             "1000",
			"KAFKA_NUM_PARTITIONS":                           strconv.Itoa(broker.Partitions),
		}),
		testcontainers.WithExposedPorts(kafkaPort),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
			host.PortBindings = network.PortMap{exposed: {{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(port)}}}
		}),
		testcontainers.WithWaitStrategy(wait.ForLog("Kafka Server started"), wait.ForListeningPort(kafkaPort)))
	stop := func() { _ = testcontainers.TerminateContainer(kafka) }
	if err != nil {
		stop()
		return "", nil, err
	}
	if err := broker.CreateTopics(ctx, address); err != nil {
		stop()
		return "", nil, fmt.Errorf("creating the topics: %w", err)
	}
	return address, stop, nil
}
