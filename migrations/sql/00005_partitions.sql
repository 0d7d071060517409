-- +goose Up

-- Makes the weekly partitions from last week to weeks_ahead weeks from now where they are missing, and
-- returns the names of those it made. Called by `migrate` and, hourly, by the relay; so it runs as the
-- owner. A lock that does not come within 200 ms is given up (55P03): the caller tries again later.
-- Rows that came while their week was missing lie in the default partition, which would refuse the new one for good: they
-- are moved, under a lock that waits for the claims of the relay and the dispatcher and keeps new ones out. Claims skip
-- rows that are locked, so that one beside the move would leave a tenant's moved events for later than those after them.
-- +goose StatementBegin
CREATE FUNCTION apipay.ensure_partitions(weeks_ahead integer DEFAULT 3) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    parent text;
    week_start timestamptz;
    part text;
    key_column text;
    week_ids text;
    astray boolean;
BEGIN
    IF weeks_ahead NOT BETWEEN 1 AND 52 THEN
        RAISE EXCEPTION 'weeks_ahead must be between 1 and 52' USING ERRCODE = '22023';
    END IF;
    -- One maker at a time; the others find its work done.
    PERFORM pg_advisory_xact_lock(hashtextextended('apipay.ensure_partitions', 0));
    FOREACH parent IN ARRAY ARRAY['outbox_events', 'webhook_events', 'outbound_webhook_deliveries', 'outbound_webhook_attempts'] LOOP
        FOR week IN -1..weeks_ahead LOOP
            week_start := (date_trunc('week', now() AT TIME ZONE 'UTC') + make_interval(weeks => week)) AT TIME ZONE 'UTC';
            part := parent || '_w' || to_char(week_start AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass('apipay.' || part) IS NOT NULL;
            EXECUTE format('CREATE TABLE apipay.%I (LIKE apipay.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, parent);
            EXECUTE format('ALTER TABLE apipay.%I SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000)', part);
            key_column := CASE parent WHEN 'outbox_events' THEN 'id' ELSE 'event_id' END;
            week_ids := format('%I >= %L AND %I < %L', key_column, apipay.uuid7_floor(week_start),
                key_column, apipay.uuid7_floor(week_start + interval '7 days'));
            EXECUTE format('SELECT EXISTS (SELECT FROM apipay.%I WHERE %s)', parent, week_ids) INTO astray;
            IF astray THEN
                EXECUTE format('LOCK TABLE apipay.%I IN EXCLUSIVE MODE', parent);
                EXECUTE format('WITH moved AS (DELETE FROM apipay.%I WHERE %s RETURNING *) INSERT INTO apipay.%I SELECT * FROM moved',
                    parent, week_ids, part);
            END IF;
            EXECUTE format('ALTER TABLE apipay.%I ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE apipay.%I FORCE ROW LEVEL SECURITY', part);
            -- pg_dump reads each partition by itself: without a policy of its own the owner's dump of it would be empty.
            EXECUTE format('CREATE POLICY owner_access ON apipay.%I FOR ALL TO apipay_owner USING (true) WITH CHECK (true)', part);
            EXECUTE format('ALTER TABLE apipay.%I ATTACH PARTITION apipay.%I FOR VALUES FROM (%L) TO (%L)',
                parent, part,
                apipay.uuid7_floor(week_start),
                apipay.uuid7_floor(week_start + interval '7 days'));
            RETURN NEXT part;
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops the partitions of one table that ended before cutoff, each only after "still needed" was counted as
-- 0 under the lock that drops it, and returns the names of those it dropped. Deliveries go only when the
-- attempts of their week are gone, events only when their deliveries are.
-- +goose StatementBegin
CREATE FUNCTION apipay.drop_partitions(parent text, cutoff timestamptz) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    part text;
    suffix text;
    still_needed boolean;
    needed_if text;
    child text;
    key_column text := CASE parent WHEN 'outbox_events' THEN 'id' ELSE 'event_id' END;
    week_start timestamptz;
    week_ids text;
BEGIN
    CASE parent
        WHEN 'outbox_events' THEN
            needed_if := 'published_at IS NULL AND discarded_at IS NULL';
        WHEN 'outbound_webhook_attempts' THEN
            needed_if := NULL;
        WHEN 'outbound_webhook_deliveries' THEN
            needed_if := 'status IN (''PENDING'', ''RETRYING'')';
            child := 'outbound_webhook_attempts';
        WHEN 'webhook_events' THEN
            needed_if := NULL;
            child := 'outbound_webhook_deliveries';
        ELSE
            RAISE EXCEPTION 'no retention for table %', parent USING ERRCODE = '22023';
    END CASE;
    IF cutoff > now() THEN
        RAISE EXCEPTION 'cutoff lies in the future' USING ERRCODE = '22023';
    END IF;
    FOR part IN
        SELECT c.relname
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = ('apipay.' || quote_ident(parent))::regclass
          AND c.relname ~ ('^' || parent || '_w[0-9]{8}$')
        ORDER BY c.relname
    LOOP
        suffix := right(part, 8);
        week_start := to_date(suffix, 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC';
        CONTINUE WHEN week_start + interval '7 days' > cutoff;
        CONTINUE WHEN child IS NOT NULL AND to_regclass('apipay.' || child || '_w' || suffix) IS NOT NULL;
        EXECUTE format('LOCK TABLE ONLY apipay.%I IN ACCESS EXCLUSIVE MODE', parent);
        EXECUTE format('LOCK TABLE apipay.%I IN ACCESS EXCLUSIVE MODE', part);
        -- Counted through the parents, with the week's ids.
        week_ids := format('%I >= %L AND %I < %L', key_column, apipay.uuid7_floor(week_start),
            key_column, apipay.uuid7_floor(week_start + interval '7 days'));
        still_needed := false;
        IF parent = 'outbound_webhook_attempts' THEN
            -- A delivery that may still be sent keeps the history of its attempts.
            EXECUTE format('SELECT EXISTS (SELECT FROM apipay.outbound_webhook_deliveries WHERE %s AND status IN (''PENDING'', ''RETRYING''))',
                week_ids) INTO still_needed;
        ELSIF needed_if IS NOT NULL THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM apipay.%I WHERE %s AND (%s))', parent, week_ids, needed_if) INTO still_needed;
        END IF;
        CONTINUE WHEN still_needed;
        EXECUTE format('DROP TABLE apipay.%I', part);
        RETURN NEXT part;
    END LOOP;
END
$$;
-- +goose StatementEnd
-- As for the weeks: what pg_dump reads as the owner.
CREATE POLICY owner_access ON apipay.outbox_events_default FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
CREATE POLICY owner_access ON apipay.webhook_events_default FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
CREATE POLICY owner_access ON apipay.outbound_webhook_deliveries_default FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
CREATE POLICY owner_access ON apipay.outbound_webhook_attempts_default FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
REVOKE ALL ON FUNCTION apipay.ensure_partitions(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION apipay.drop_partitions(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apipay.ensure_partitions(integer) TO apipay_worker;
GRANT EXECUTE ON FUNCTION apipay.drop_partitions(text, timestamptz) TO apipay_worker;

-- +goose Down
DROP FUNCTION apipay.drop_partitions(text, timestamptz);
DROP FUNCTION apipay.ensure_partitions(integer);
