package testdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/migrations"
)

// setupLock is held while roles and templates are made: roles belong to the cluster, and many test processes share it.
const setupLock = 0x61706970 // "apip"

var roles = []string{"apipay_owner", "apipay_app", "apipay_worker", "apipay_admin"}

var (
	rolesOnce    sync.Once
	errRoles     error
	templateOnce sync.Once
	templateName string
	errTemplate  error
)

// ensureRoles makes the four roles able to log in with the test password.
func (c *server) ensureRoles() error {
	rolesOnce.Do(func() {
		errRoles = c.locked(func(ctx context.Context, conn *pgx.Conn) error { return ensureRoles(ctx, conn) })
	})
	return errRoles
}

func ensureRoles(ctx context.Context, conn *pgx.Conn) error {
	for _, role := range roles {
		var exists bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&exists); err != nil {
			return err
		}
		verb := "ALTER"
		if !exists {
			verb = "CREATE"
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf("%s ROLE %s LOGIN PASSWORD '%s'", verb, role, rolePassword)); err != nil {
			return fmt.Errorf("role %s: %w", role, err)
		}
	}
	return nil
}

// template returns the name of the database that holds the present schema, making it when no other process has.
func (c *server) template() (string, error) {
	templateOnce.Do(func() {
		var sum string
		if sum, errTemplate = schemaSum(); errTemplate != nil {
			return
		}
		templateName = "apipay_template_" + sum[:16]
		errTemplate = c.locked(func(ctx context.Context, conn *pgx.Conn) error {
			if err := ensureRoles(ctx, conn); err != nil {
				return err
			}
			return c.makeTemplate(ctx, conn, templateName)
		})
	})
	return templateName, errTemplate
}

func (c *server) makeTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	// Connections are refused as the last step, so that one that takes them was left half made.
	const sql = "SELECT count(*) FILTER (WHERE NOT datallowconn) > 0, count(*) > 0 FROM pg_database WHERE datname = $1"
	var done, exists bool
	if err := conn.QueryRow(ctx, sql, name).Scan(&done, &exists); err != nil {
		return err
	}
	if done {
		return nil
	}
	if exists {
		if _, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return err
	}
	if err := c.with(name, func(ctx context.Context, target *pgx.Conn) error {
		_, err := target.Exec(ctx, migrations.BootstrapSQL)
		return err
	}); err != nil {
		return fmt.Errorf("bootstrap.sql: %w", err)
	}
	// Again, since bootstrap.sql may set attributes of roles that it finds.
	if err := ensureRoles(ctx, conn); err != nil {
		return err
	}
	if err := migrations.Up(ctx, c.dsn("apipay_owner", name)); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	_, err := conn.Exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
	return err
}

// locked runs do on a connection to the maintenance database that holds the set-up lock.
func (c *server) locked(do func(context.Context, *pgx.Conn) error) error {
	return c.with("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", setupLock); err != nil {
			return err
		}
		return do(ctx, conn) // closing the connection gives the lock back
	})
}

// schemaSum changes with every byte of bootstrap.sql and of the migrations.
func schemaSum() (string, error) {
	sum := sha256.New()
	sum.Write([]byte(migrations.BootstrapSQL))
	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := migrations.FS.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "\x00%s\x00%d\x00%s", path, len(body), body)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}
