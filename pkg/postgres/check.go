package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// SchemaVersion is the oldest schema this code runs on: apipay.schema_info.version.
	SchemaVersion = 1
	// CodeVersion is compared with apipay.schema_info.min_code: a contract migration raises that one release
	// after the code stopped needing what it takes away.
	CodeVersion = 1
)

// Verb is a statement that a service issues on a table.
type Verb string

// The verbs. Lock is SELECT ... FOR UPDATE: Postgres asks for UPDATE on at least one column, and a role
// whose policies cover only SELECT would get no rows from it, and no error.
const (
	Select Verb = "SELECT"
	Insert Verb = "INSERT"
	Update Verb = "UPDATE"
	Delete Verb = "DELETE"
	Lock   Verb = "LOCK"
)

// Need is what a service does with one table; Columns are those it updates.
type Need struct {
	Table   string
	Verbs   []Verb
	Columns []string
}

// Check verifies, by the catalogue and never by counting rows, that the session's role may run the service:
// it is the role expected, neither superuser nor BYPASSRLS, its privileges and row level security policies
// cover every need, and schema and code fit. The error is one line that says what to do.
func Check(ctx context.Context, pool *pgxpool.Pool, role string, needs []Need) error {
	if err := checkRole(ctx, pool, role); err != nil {
		return err
	}
	if err := checkSchema(ctx, pool); err != nil {
		return err
	}
	var missing []string
	for _, need := range needs {
		found, err := missingFor(ctx, pool, need)
		if err != nil {
			return err
		}
		missing = append(missing, found...)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the database role %s cannot do what this service does: %s; run the migrations of this release as apipay_owner", role, strings.Join(missing, "; "))
	}
	return nil
}

func checkRole(ctx context.Context, pool *pgxpool.Pool, role string) error {
	const query = `
		SELECT current_user, session_user, r.rolsuper, r.rolbypassrls,
		       EXISTS (SELECT FROM pg_catalog.pg_roles o
		               WHERE (o.rolsuper OR o.rolbypassrls OR o.rolname = 'apipay_owner')
		                 AND o.rolname <> current_user AND pg_has_role(current_user, o.oid, 'MEMBER'))
		FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`
	var current, session string
	var super, bypass, powerful bool
	if err := pool.QueryRow(ctx, query).Scan(&current, &session, &super, &bypass, &powerful); err != nil {
		return fmt.Errorf("reading the database role: %w", redact(err))
	}
	switch {
	case super:
		return fmt.Errorf("the database role %s is a superuser, which row level security does not bind: connect as %s", current, role)
	case bypass:
		return fmt.Errorf("the database role %s has BYPASSRLS, which takes tenant isolation away: connect as %s", current, role)
	case powerful:
		return fmt.Errorf("the database role %s is a member of a superuser, of a BYPASSRLS role or of apipay_owner: connect as %s", current, role)
	case current != role:
		return fmt.Errorf("the database role is %s and this service runs as %s: change APIPAY_DATABASE_URL", current, role)
	case session != current:
		return fmt.Errorf("the session began as %s and was switched to %s: connect as %s directly", session, current, role)
	}
	return nil
}

func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var version, minCode int64
	const exists = `SELECT to_regclass('apipay.schema_info') IS NOT NULL`
	var found bool
	if err := pool.QueryRow(ctx, exists).Scan(&found); err != nil {
		return fmt.Errorf("reading the schema version: %w", redact(err))
	}
	if !found {
		return fmt.Errorf("the schema apipay is empty: run `migrate up` as apipay_owner")
	}
	const query = `SELECT version, min_code FROM apipay.schema_info`
	if err := pool.QueryRow(ctx, query).Scan(&version, &minCode); err != nil {
		return fmt.Errorf("reading the schema version: %w", redact(err))
	}
	if version < SchemaVersion {
		return fmt.Errorf("the schema has version %d and this release needs %d: run `migrate up` as apipay_owner", version, SchemaVersion)
	}
	if minCode > CodeVersion {
		return fmt.Errorf("the schema asks for code version %d or newer and this release is %d: deploy a newer release", minCode, CodeVersion)
	}
	return nil
}

func missingFor(ctx context.Context, pool *pgxpool.Pool, need Need) ([]string, error) {
	table := "apipay." + need.Table
	var enabled, forced, owned bool
	var restricted []string
	const tableQuery = `
		SELECT c.relrowsecurity, c.relforcerowsecurity, pg_has_role(current_user, c.relowner, 'MEMBER'),
		       ARRAY(SELECT p.polname::text FROM pg_catalog.pg_policy p
		             WHERE p.polrelid = c.oid AND NOT p.polpermissive AND p.polname <> 'mode_isolation'
		               AND (p.polroles = '{0}' OR EXISTS (
		                   SELECT FROM unnest(p.polroles) AS member (oid) WHERE pg_has_role(current_user, member.oid, 'USAGE'))))
		FROM pg_catalog.pg_class c WHERE c.oid = to_regclass($1)`
	switch err := pool.QueryRow(ctx, tableQuery, table).Scan(&enabled, &forced, &owned, &restricted); {
	case err == pgx.ErrNoRows: //nolint:errorlint // returned as it is
		return []string{"table " + table + " is missing"}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the catalogue: %w", redact(err))
	}
	var missing []string
	if !enabled || !forced {
		missing = append(missing, "row level security is not enabled and forced on "+table)
	}
	if owned {
		missing = append(missing, "the role owns "+table+" and could switch its row level security off")
	}
	for _, name := range restricted {
		missing = append(missing, fmt.Sprintf("the restrictive policy %s on %s may hide every row", name, table))
	}
	for _, verb := range need.Verbs {
		ok, err := isAllowed(ctx, pool, table, verb, need.Columns)
		if err != nil {
			return nil, err
		}
		if !ok {
			missing = append(missing, fmt.Sprintf("no privilege for %s on %s", verb, table))
		}
		for _, command := range policyCommands(verb) {
			ok, err := isCovered(ctx, pool, table, command)
			if err != nil {
				return nil, err
			}
			if !ok {
				missing = append(missing, fmt.Sprintf("no permissive policy of this release covers %s on %s", verb, table))
				break
			}
		}
	}
	return missing, nil
}

func isAllowed(ctx context.Context, pool *pgxpool.Pool, table string, verb Verb, columns []string) (bool, error) {
	var ok bool
	switch verb {
	case Select, Insert, Delete:
		const query = `SELECT has_table_privilege(current_user, $1, $2) OR ($2 <> 'DELETE' AND has_any_column_privilege(current_user, $1, $2))`
		if verb == Delete {
			if err := pool.QueryRow(ctx, `SELECT has_table_privilege(current_user, $1, 'DELETE')`, table).Scan(&ok); err != nil {
				return false, fmt.Errorf("reading privileges: %w", redact(err))
			}
			return ok, nil
		}
		if err := pool.QueryRow(ctx, query, table, string(verb)).Scan(&ok); err != nil {
			return false, fmt.Errorf("reading privileges: %w", redact(err))
		}
		return ok, nil
	case Lock:
		columns = nil
	case Update:
	}
	const query = `
		SELECT has_any_column_privilege(current_user, $1, 'UPDATE')
		   AND (SELECT coalesce(bool_and(has_column_privilege(current_user, $1, c, 'UPDATE')), true) FROM unnest($2::text[]) c)`
	if err := pool.QueryRow(ctx, query, table, columns).Scan(&ok); err != nil {
		return false, fmt.Errorf("reading privileges: %w", redact(err))
	}
	return ok, nil
}

// policyCommands are the policy commands that must be covered for the verb to reach a row.
func policyCommands(verb Verb) []string {
	switch verb {
	case Lock, Update:
		return []string{"SELECT", "UPDATE"}
	case Delete:
		return []string{"SELECT", "DELETE"}
	case Select, Insert:
	}
	return []string{string(verb)}
}

// isCovered looks for a permissive policy whose predicate is the one that this release's roles go by: a
// policy that covers the verb and shows other rows, or none, is not it.
func isCovered(ctx context.Context, pool *pgxpool.Pool, table, command string) (bool, error) {
	const query = `
		SELECT EXISTS (
		    SELECT FROM pg_catalog.pg_policy p
		    CROSS JOIN LATERAL (
		        SELECT pg_get_expr(CASE $2 WHEN 'INSERT' THEN coalesce(p.polwithcheck, p.polqual) ELSE p.polqual END, p.polrelid) AS predicate) e
		    WHERE p.polrelid = to_regclass($1) AND p.polpermissive
		      AND CASE p.polname
		          WHEN 'platform_access' THEN e.predicate = 'true'
		          WHEN 'tenant_isolation' THEN e.predicate LIKE '(%id = (NULLIF(current_setting(''app.tenant_id''::text, true), ''''::text))::uuid)'
		          WHEN 'support_access' THEN e.predicate LIKE '((current_setting(''app.admin_scope''::text, true) = ''*''::text) OR %'
		          ELSE false END
		      AND (p.polcmd = '*' OR p.polcmd = CASE $2 WHEN 'SELECT' THEN 'r' WHEN 'INSERT' THEN 'a' WHEN 'UPDATE' THEN 'w' ELSE 'd' END)
		      AND (p.polroles = '{0}' OR EXISTS (
		          SELECT FROM unnest(p.polroles) AS member (oid) WHERE pg_has_role(current_user, member.oid, 'USAGE'))))`
	var ok bool
	if err := pool.QueryRow(ctx, query, table, command).Scan(&ok); err != nil {
		return false, fmt.Errorf("reading policies: %w", redact(err))
	}
	return ok, nil
}
