package kafka_test

import (
	"net"
	"os"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/kafka"
)

// EnvApache is set by `make test-kafka`: only there is Apache Kafka fetched.
const EnvApache = "TEST_KAFKA_APACHE"

func find(t *testing.T) kafka.Installation {
	t.Helper()
	if os.Getenv(EnvApache) == "" {
		t.Skip("run by make test-kafka")
	}
	found, err := kafka.Find(t.Context(), os.Stderr)
	require.NoError(t, err)
	return found
}

func TestStart(t *testing.T) {
	t.Parallel()
	found := find(t)
	config := kafka.Config{Dir: t.TempDir(), Node: 1, Port: freePort(t), ControllerPort: freePort(t)}
	node, err := found.Start(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, broker.CreateTopics(t.Context(), config.Addr()))
	node.Kill()

	node, err = found.Start(t.Context(), config)
	require.NoError(t, err)
	defer node.Kill()
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := kafkago.Client{Addr: kafkago.TCP(config.Addr()), Transport: transport}
	response, err := client.Metadata(t.Context(), &kafkago.MetadataRequest{Topics: broker.Topics})
	require.NoError(t, err)
	for _, topic := range response.Topics {
		require.NoError(t, topic.Error)
		require.Len(t, topic.Partitions, broker.Partitions, topic.Name)
	}
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	// Known pairs, from Kafka's own tests: murmur2("21") = -973932308, murmur2("a-little-bit-longer-string") = -1486304829.
	chosen, err := find(t).Partitions(t.Context(), []string{"21", "a-little-bit-longer-string"}, 16)
	require.NoError(t, err)
	require.Equal(t, []int{(-973932308 & 0x7fffffff) % 16, (-1486304829 & 0x7fffffff) % 16}, chosen)
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
