package postgres

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// poolerAware makes a pool work behind a pooler in transaction mode. Such a pooler gives each transaction another server
// connection, on which a statement that was prepared before does not exist (PgBouncer follows them from 1.21 on, where it is
// told to). So before the first connection one is made to look, and behind a pooler pgx keeps the descriptions of
// statements and prepares none. A DSN that names default_query_exec_mode is obeyed.
type poolerAware struct {
	mu      sync.Mutex
	known   bool
	between bool
}

func (p *poolerAware) beforeConnect(ctx context.Context, config *pgx.ConnConfig) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		between, err := isPooler(ctx, config)
		if err != nil {
			return err
		}
		p.known, p.between = true, between
	}
	if p.between {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

// isPooler compares whom the connection says that it reached with who answers.
func isPooler(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return false, err
	}
	return string(results[0].Rows[0][0]) != strconv.FormatUint(uint64(conn.PID()), 10), nil
}

func namesExecMode(dsn string) bool { return strings.Contains(dsn, "default_query_exec_mode") }
