-- +goose Up
SET LOCAL lock_timeout = '200ms';
ALTER TABLE apipay.payment_intents VALIDATE CONSTRAINT payment_intents_status_check;

-- +goose Down
SELECT 1;
