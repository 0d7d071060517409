-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_intents_by_channel ON apipay.payment_intents (tenant_id, livemode, channel);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS apipay.payment_intents_by_channel;
