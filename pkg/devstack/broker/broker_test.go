package broker_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/broker"
)

const (
	envPort = "BROKER_TEST_PORT"
	envDir  = "BROKER_TEST_DIR"
	topic   = "apipay.outbound-webhooks.v1"
)

// TestMain is also the broker's process, for the test that kills it.
func TestMain(m *testing.M) {
	if port, err := strconv.Atoi(os.Getenv(envPort)); err == nil {
		if _, err := broker.Start(broker.Config{Port: port, DataDir: os.Getenv(envDir)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestBroker(t *testing.T) {
	t.Parallel()

	t.Run("KeepsRecordsAndOffsetsThroughKill", func(t *testing.T) {
		t.Parallel()
		port, dir := freePort(t), t.TempDir()
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		process := start(t, port, dir)
		produce(t, address, 3, "one", "two", "three")
		require.Equal(t, []string{"one", "two"}, consume(t, address, "group", 2))

		require.NoError(t, process.Process.Kill())
		_ = process.Wait()
		start(t, port, dir)

		produce(t, address, 3, "four")
		require.Equal(t, []string{"three", "four"}, consume(t, address, "group", 2), "goes on at the committed offset")
		require.Equal(t, []string{"one", "two", "three", "four"}, consume(t, address, "other", 4))
	})

	t.Run("HasEveryTopicWithItsPartitions", func(t *testing.T) {
		t.Parallel()
		b, err := broker.Start(broker.Config{})
		require.NoError(t, err)
		defer b.Close()
		transport := &kafka.Transport{}
		defer transport.CloseIdleConnections()
		client := kafka.Client{Addr: kafka.TCP(b.Addrs()...), Transport: transport}
		metadata, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: broker.Topics})
		require.NoError(t, err)
		require.Len(t, metadata.Topics, len(broker.Topics))
		for _, topic := range metadata.Topics {
			require.NoError(t, topic.Error)
			require.Len(t, topic.Partitions, broker.Partitions, topic.Name)
		}
	})

	t.Run("RefusesAPortInUse", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer taken.Close()
		port := taken.Addr().(*net.TCPAddr).Port
		_, err = broker.Start(broker.Config{Port: port})
		require.ErrorContains(t, err, strconv.Itoa(port))
	})
}

func start(t *testing.T, port int, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envPort+"="+strconv.Itoa(port), envDir+"="+dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	return cmd
}

func produce(t *testing.T, address string, partition int, values ...string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(address), Transport: transport}
	records := make([]kafka.Record, 0, len(values))
	for _, value := range values {
		records = append(records, kafka.Record{Value: kafka.NewBytes([]byte(value))})
	}
	response, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
	})
	require.NoError(t, err)
	require.NoError(t, response.Error)
}

func consume(t *testing.T, address, group string, count int) []string {
	t.Helper()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var values []string
	for len(values) < count {
		message, err := reader.FetchMessage(ctx)
		require.NoError(t, err)
		values = append(values, string(message.Value))
		require.NoError(t, reader.CommitMessages(ctx, message))
	}
	return values
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
