package payments_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// statements is a tracer that keeps what is sent to Postgres.
type statements struct {
	mu   sync.Mutex
	list []string
	// trips counts the round trips.
	trips int
}

func (s *statements) add(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, strings.Join(strings.Fields(sql), " "))
}

func (s *statements) take() (list []string, trips int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, trips = s.list, s.trips
	s.list, s.trips = nil, 0
	return list, trips
}

func (s *statements) trip() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trips++
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.add(d.SQL)
	s.trip()
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.trip()
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s.add(d.SQL)
}

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestStatements counts what each operation costs: commits, statements beside BEGIN and COMMIT, and round trips. The sandbox has a
// pool of its own here, as a real gateway has a database of its own. The README names these figures.
func TestStatements(t *testing.T) {
	t.Parallel()
	sent := &statements{}
	b := setup(t)
	config, err := pgxpool.ParseConfig(b.db.App)
	require.NoError(t, err)
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	_, server := b.serve(pool, withSandboxOn(b.pool))
	me := b.me().at(server)
	body := `{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa"`
	pi, other := "", me.created("pm_card_visa")
	for _, operation := range []struct {
		name, path, body           string
		status                     int
		commits, statements, trips int
	}{
		{"create", intents, body + "}", http.StatusCreated, 1, 4, 3},
		{"confirm", "/confirm", "", http.StatusOK, 2, 12, 4},
		{"refund", "/refunds", "", http.StatusCreated, 2, 17, 4},
		{"cancel", cancelPath(other), "", http.StatusOK, 1, 6, 2},
		{"create with confirm", intents, body + `,"confirm":true}`, http.StatusCreated, 2, 12, 4},
	} {
		path := operation.path
		if !strings.HasPrefix(path, intents) {
			path = intents + "/" + pi + path
		}
		sent.take()
		a := me.post(path, operation.body).is(operation.status)
		if operation.name == "create" {
			pi = a.id()
		}
		commits, others := 0, []string{}
		list, trips := sent.take()
		for _, sql := range list {
			switch sql {
			case "begin":
			case "commit":
				commits++
			default:
				others = append(others, sql)
			}
		}
		require.Equal(t, operation.commits, commits, operation.name)
		require.Equal(t, operation.trips, trips, operation.name)
		require.Len(t, others, operation.statements, "%s:\n%s", operation.name, strings.Join(others, "\n"))
	}
}
