-- +goose Up
SET LOCAL lock_timeout = '200ms';
ALTER TABLE apipay.payment_intents ADD COLUMN channel text;
-- One more state: the wider CHECK first holds for new rows only.
ALTER TABLE apipay.payment_intents
    DROP CONSTRAINT payment_intents_status_check,
    ADD CONSTRAINT payment_intents_status_check CHECK (status IN
        ('requires_payment_method', 'requires_confirmation', 'requires_action', 'processing', 'succeeded', 'canceled')) NOT VALID;
GRANT UPDATE (channel) ON apipay.payment_intents TO apipay_app;
UPDATE apipay.schema_info SET version = 2;

-- +goose Down
ALTER TABLE apipay.payment_intents DROP COLUMN channel;
UPDATE apipay.schema_info SET version = 1;
