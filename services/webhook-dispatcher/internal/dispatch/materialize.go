package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// errRecord says that the database refused what a record holds.
var errRecord = errors.New("the database refuses a record")

// materialize writes a batch of records in one transaction: events with their deliveries, and those that can never be
// processed into quarantine. A record that was there before changes nothing, so a batch may be repeated at will.
func (d *Dispatcher) materialize(ctx context.Context, batch []kafka.Message) error {
	started := time.Now()
	arrivals, refusals := sortOut(batch)
	admitted, more, err := d.admit(ctx, arrivals)
	if err != nil {
		return recordError(err)
	}
	var made []madeDelivery
	if refusals = slices.Concat(refusals, more); len(refusals) == 0 {
		// One statement is a transaction of its own.
		made, err = insertEvents(ctx, d.pool, admitted)
	} else {
		err = postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
			if made, err = insertEvents(ctx, tx, admitted); err != nil {
				return err
			}
			return d.quarantine(ctx, tx, refusals)
		})
	}
	if err != nil {
		return recordError(err)
	}
	for _, m := range made {
		if !m.Failed {
			d.work.add(m.EndpointID, m.TenantID, firstAttempts, time.Time{})
		}
	}
	d.metrics.materialized(ctx, len(batch), len(made), time.Since(started))
	return nil
}

// materializeEach is for a batch in which one record is refused by the database.
func (d *Dispatcher) materializeEach(ctx context.Context, batch []kafka.Message) error {
	for _, record := range batch {
		err := d.materialize(ctx, []kafka.Message{record})
		if errors.Is(err, errRecord) {
			err = postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
				return d.quarantine(ctx, tx, []refusal{{record: record, reason: reasonUnprocessable, detail: err.Error()}})
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sortOut reads the records. Of one event that comes twice in a batch the first counts. The order is by id, in which two
// consumers of the same records cannot lock each other out.
func sortOut(batch []kafka.Message) (arrivals []arrival, refusals []refusal) {
	seen := map[uuid.UUID]bool{}
	for _, record := range batch {
		a, refused := read(record)
		switch {
		case refused != nil:
			refusals = append(refusals, *refused)
		case !seen[a.eventID]:
			seen[a.eventID] = true
			arrivals = append(arrivals, a)
		}
	}
	slices.SortFunc(arrivals, func(a, b arrival) int { return bytes.Compare(a.eventID[:], b.eventID[:]) })
	return arrivals, refusals
}

// weeksAhead is how many weeks from now partitions are made for: apipay.ensure_partitions().
const weeksAhead = 3

// admit turns away events of tenants that do not exist, of weeks that retention has dropped, and of weeks that have no partition
// yet: no clock of ours is that wrong, and in the default partition they would keep the week's own from being made.
func (d *Dispatcher) admit(ctx context.Context, arrivals []arrival) (admitted []arrival, refusals []refusal, err error) {
	if len(arrivals) == 0 {
		return nil, nil, nil
	}
	if err := d.learnTenants(ctx, arrivals); err != nil {
		return nil, nil, err
	}
	now, err := d.databaseTime(ctx)
	if err != nil {
		return nil, nil, err
	}
	gone := map[time.Time]bool{}
	for _, a := range arrivals {
		tenant := uuid.NullUUID{UUID: a.tenantID, Valid: true}
		if _, known := d.tenants.Load(a.tenantID); !known {
			refusals = append(refusals, refusal{a.record, tenant, reasonUnknownTenant, "no such tenant"})
			continue
		}
		week := weekOf(a.eventID)
		if week.AddDate(0, 0, -7*weeksAhead).After(now) {
			refusals = append(refusals, refusal{a.record, tenant, reasonInFuture, "the id of the event is of " + id.Time(a.eventID).UTC().Format(time.RFC3339)})
			continue
		}
		// The weeks of now and of seven days ago always exist.
		if week.AddDate(0, 0, 14).Before(now) {
			isGone, asked := gone[week]
			if !asked {
				if isGone, err = d.weekIsGone(ctx, week); err != nil {
					return nil, nil, err
				}
				gone[week] = isGone
			}
			if isGone {
				refusals = append(refusals, refusal{a.record, tenant, reasonExpired, "the week of the event is no longer kept"})
				continue
			}
		}
		admitted = append(admitted, a)
	}
	return admitted, refusals, nil
}

// databaseClock is what the database's clock said, and when.
type databaseClock struct {
	said time.Time
	at   time.Time
}

const databaseClockLasts = time.Minute

// databaseTime is good for judging weeks: what was said within the last minute, and what has passed since.
func (d *Dispatcher) databaseTime(ctx context.Context) (time.Time, error) {
	if c := d.weekClock.Load(); c != nil && time.Since(c.at) < databaseClockLasts {
		return c.said.Add(time.Since(c.at)), nil
	}
	c := databaseClock{at: time.Now()}
	if err := d.pool.QueryRow(ctx, `SELECT now()`).Scan(&c.said); err != nil {
		return time.Time{}, fmt.Errorf("asking the database's clock: %w", err)
	}
	d.weekClock.Store(&c)
	return c.said, nil
}

const findTenants = `SELECT id FROM apipay.tenants WHERE id = ANY($1)`

func (d *Dispatcher) learnTenants(ctx context.Context, arrivals []arrival) error {
	var unknown []uuid.UUID
	for _, a := range arrivals {
		if _, known := d.tenants.Load(a.tenantID); !known && !slices.Contains(unknown, a.tenantID) {
			unknown = append(unknown, a.tenantID)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	rows, err := d.pool.Query(ctx, findTenants, unknown)
	if err != nil {
		return fmt.Errorf("finding tenants: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("finding tenants: %w", err)
	}
	for _, tenantID := range found {
		d.tenants.Store(tenantID, struct{}{})
	}
	return nil
}

// Deliveries are dropped before events, so all three are asked for.
const weekQuery = `
	SELECT bool_or(to_regclass('apipay.' || t || '_w' || $1) IS NULL)
	FROM unnest(ARRAY['webhook_events', 'outbound_webhook_deliveries', 'outbound_webhook_attempts']) AS t`

func (d *Dispatcher) weekIsGone(ctx context.Context, week time.Time) (gone bool, err error) {
	if err := d.pool.QueryRow(ctx, weekQuery, week.Format("20060102")).Scan(&gone); err != nil {
		return false, fmt.Errorf("looking for the week's partitions: %w", err)
	}
	return gone, nil
}

// One statement: an event's row and its deliveries appear together, and only who inserted the event makes deliveries.
// A disabled endpoint's are made too, failed at once, so that nothing vanishes and a recovery finds them.
const insertEventsQuery = `
	WITH incoming AS MATERIALIZED (
	    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::integer[],
	                         $9::bigint[], $10::bigint[], $11::uuid[])
	        AS i (event_id, tenant_id, livemode, type, body, traceparent, topic, kafka_partition, kafka_offset, created, about)
	), matched AS MATERIALIZED (
	    SELECT i.event_id, i.tenant_id, i.livemode, i.type, e.id AS endpoint_id, e.status = 'disabled' AS disabled
	    FROM incoming i
	    JOIN apipay.webhook_endpoints e
	      ON e.tenant_id = i.tenant_id AND e.livemode = i.livemode AND e.deleted_at IS NULL
	     AND date_trunc('second', e.created_at) <= to_timestamp(i.created)
	     AND CASE WHEN i.type = $12 THEN e.id = i.about
	              ELSE e.id IS DISTINCT FROM i.about AND e.enabled_events && ARRAY[i.type, '*'] END
	), fresh AS (
	    INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, traceparent, kafka_topic, kafka_partition,
	        kafka_offset, endpoints_matched, event_created_at)
	    SELECT i.event_id, i.tenant_id, i.livemode, i.type, i.body, i.traceparent, i.topic, i.kafka_partition, i.kafka_offset,
	        (SELECT count(*) FROM matched m WHERE m.event_id = i.event_id), to_timestamp(i.created)
	    FROM incoming i
	    ON CONFLICT DO NOTHING
	    RETURNING event_id
	)
	INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status,
	    next_attempt_at, failed_at, failure_reason)
	SELECT m.event_id, m.endpoint_id, apipay.uuid7_beside(m.event_id), m.tenant_id, m.livemode, m.type,
	    CASE WHEN m.disabled THEN 'FAILED' ELSE 'PENDING' END,
	    CASE WHEN m.disabled THEN NULL ELSE now() END,
	    CASE WHEN m.disabled THEN now() END,
	    CASE WHEN m.disabled THEN 'endpoint_disabled' END
	FROM matched m JOIN fresh f USING (event_id)
	RETURNING endpoint_id, tenant_id, status = 'FAILED' AS failed`

type madeDelivery struct {
	EndpointID uuid.UUID
	TenantID   uuid.UUID
	Failed     bool
}

// querier is a transaction or, for one statement, a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func insertEvents(ctx context.Context, tx querier, arrivals []arrival) ([]madeDelivery, error) {
	if len(arrivals) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, insertEventsQuery, insertArgs(arrivals)...)
	if err != nil {
		return nil, fmt.Errorf("inserting events: %w", err)
	}
	made, err := pgx.CollectRows(rows, pgx.RowToStructByName[madeDelivery])
	if err != nil {
		return nil, fmt.Errorf("inserting events: %w", err)
	}
	return made, nil
}

func insertArgs(arrivals []arrival) []any {
	n := len(arrivals)
	eventIDs, tenantIDs, livemodes, types := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]bool, n), make([]string, n)
	bodies, traceparents, topics := make([][]byte, n), make([]*string, n), make([]string, n)
	partitions, offsets, created, abouts := make([]int32, n), make([]int64, n), make([]int64, n), make([]uuid.NullUUID, n)
	for i, a := range arrivals {
		eventIDs[i], tenantIDs[i], livemodes[i], types[i] = a.eventID, a.tenantID, a.livemode, a.eventType
		bodies[i], traceparents[i], topics[i] = a.record.Value, a.traceparent, a.record.Topic
		partitions[i], offsets[i] = int32(a.record.Partition), a.record.Offset //nolint:gosec // a partition's number
		created[i], abouts[i] = a.created, a.about
	}
	return []any{eventIDs, tenantIDs, livemodes, types, bodies, traceparents, topics, partitions, offsets, created, abouts, events.TypePing}
}

// recordError tells a refusal of the data from everything else. A value that breaks a rule of the schema breaks it again.
func recordError(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code[:2] {
		case "22", "23", "54":
			return fmt.Errorf("%w: %s (SQLSTATE %s)", errRecord, pgErr.Message, pgErr.Code)
		}
	}
	return err
}
