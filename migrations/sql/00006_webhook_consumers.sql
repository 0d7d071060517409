-- +goose Up

-- The dispatchers that read the topic now. A row whose lease_until is past belongs to a process that died, stands still or has lost
-- its database; what it held is free.
CREATE TABLE apipay.webhook_consumers (
    id          uuid PRIMARY KEY,
    lease_until timestamptz NOT NULL
);
ALTER TABLE apipay.webhook_consumers ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.webhook_consumers FORCE ROW LEVEL SECURITY;
CREATE POLICY platform_access ON apipay.webhook_consumers FOR ALL TO apipay_worker USING (true) WITH CHECK (true);
CREATE POLICY owner_access ON apipay.webhook_consumers FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE (lease_until), DELETE ON apipay.webhook_consumers TO apipay_worker;

-- Who reads which partition. A consumer that leaves frees all that it holds by deleting its row.
CREATE TABLE apipay.webhook_consumer_partitions (
    kafka_partition integer PRIMARY KEY CHECK (kafka_partition >= 0),
    consumer_id     uuid NOT NULL REFERENCES apipay.webhook_consumers (id) ON DELETE CASCADE
);
CREATE INDEX webhook_consumer_partitions_by_consumer ON apipay.webhook_consumer_partitions (consumer_id);
ALTER TABLE apipay.webhook_consumer_partitions ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.webhook_consumer_partitions FORCE ROW LEVEL SECURITY;
CREATE POLICY platform_access ON apipay.webhook_consumer_partitions FOR ALL TO apipay_worker USING (true) WITH CHECK (true);
CREATE POLICY owner_access ON apipay.webhook_consumer_partitions FOR ALL TO apipay_owner USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE (consumer_id), DELETE ON apipay.webhook_consumer_partitions TO apipay_worker;

-- +goose Down
DROP TABLE apipay.webhook_consumer_partitions, apipay.webhook_consumers;
