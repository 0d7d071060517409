// Package testdb gives each test a database of its own, cloned from a template that bootstrap.sql and all migrations were
// applied to once, and a Kafka broker. They come from TEST_DATABASE_URL and TEST_KAFKA_BROKERS, else from a Docker engine,
// else from the embedded stack, which ends with the test's process.
package testdb

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// setupTimeout bounds one statement against the cluster, a clone of the template included.
const setupTimeout = 60 * time.Second

// rolePassword is the password of the four roles in a test cluster, which holds nothing worth guarding.
const rolePassword = "apipay-test"

// DB is one test's database. The strings are URIs of its roles.
type DB struct {
	Name   string
	Owner  string // apipay_owner
	App    string // apipay_app: payment-api
	Worker string // apipay_worker: outbox-relay and webhook-dispatcher
	Admin  string // apipay_admin: admin-api
	Super  string // the cluster's superuser
}

// New makes a database with the whole schema; it is dropped when the test ends.
func New(t testing.TB) *DB {
	t.Helper()
	c := cluster(t)
	template, err := c.template()
	if err != nil {
		t.Fatalf("testdb: making the template database: %v", err)
	}
	return c.create(t, template)
}

// Empty makes a database with nothing in it. The roles exist, since they belong to the cluster, and can log in.
func Empty(t testing.TB) *DB {
	t.Helper()
	c := cluster(t)
	if err := c.ensureRoles(); err != nil {
		t.Fatalf("testdb: making the roles: %v", err)
	}
	return c.create(t, "template0")
}

// Pool connects with a DSN of db; the pool is closed when the test ends.
func (db *DB) Pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatalf("testdb: opening a pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (c *server) create(t testing.TB, template string) *DB {
	t.Helper()
	name := "t_" + strings.ToLower(rand.Text()[:20])
	err := c.with("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		// By the default strategy, WAL_LOG: a FILE_COPY waits for two checkpoints and took half as long again.
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
			return err
		}
		// A clone does not inherit the privileges on the database itself that bootstrap.sql sets.
		_, err := conn.Exec(ctx, "REVOKE ALL ON DATABASE "+name+" FROM PUBLIC; "+
			"GRANT CONNECT ON DATABASE "+name+" TO "+strings.Join(roles, ", "))
		return err
	})
	if err != nil {
		t.Fatalf("testdb: creating a database: %v", err)
	}
	t.Cleanup(func() {
		err := c.with("postgres", func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
			return err
		})
		if err != nil {
			t.Errorf("testdb: dropping the database: %v", err)
		}
	})
	return &DB{
		Name:   name,
		Owner:  c.dsn("apipay_owner", name),
		App:    c.dsn("apipay_app", name),
		Worker: c.dsn("apipay_worker", name),
		Admin:  c.dsn("apipay_admin", name),
		Super:  c.dsn("", name),
	}
}

// server is the Postgres that a test process uses.
type server struct {
	super url.URL
}

// dsn is the URI of a role, or of the superuser for "", in a database.
func (c *server) dsn(role, database string) string {
	uri := c.super
	uri.Path = "/" + database
	if role != "" {
		uri.User = url.UserPassword(role, rolePassword)
	}
	return uri.String()
}

func (c *server) with(database string, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.dsn("", database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(ctx, conn)
}
