-- +goose Up

-- What has gone wrong, as support asks for it: by state alone, of a tenant, of an endpoint, newest first. Without them a tenant of
-- millions with nothing that retries is read to its end to say so. They hold no row that was delivered at the first try, so they
-- cost nothing while deliveries succeed.
CREATE INDEX outbound_webhook_deliveries_troubled ON apipay.outbound_webhook_deliveries (status, event_id, endpoint_id)
    WHERE status IN ('RETRYING', 'FAILED');
CREATE INDEX outbound_webhook_deliveries_troubled_by_tenant ON apipay.outbound_webhook_deliveries (tenant_id, status, event_id, endpoint_id)
    WHERE status IN ('RETRYING', 'FAILED');
CREATE INDEX outbound_webhook_deliveries_troubled_by_endpoint ON apipay.outbound_webhook_deliveries (endpoint_id, status, event_id)
    WHERE status IN ('RETRYING', 'FAILED');
-- A tenant's own rows of the lists that all tenants share, for staff who are confined to it.
CREATE INDEX quarantined_records_by_tenant ON apipay.quarantined_records (tenant_id, created_at, id);
CREATE INDEX recoveries_by_tenant ON apipay.recoveries (tenant_id, created_at, id);

-- +goose Down
DROP INDEX apipay.recoveries_by_tenant, apipay.quarantined_records_by_tenant, apipay.outbound_webhook_deliveries_troubled_by_endpoint,
    apipay.outbound_webhook_deliveries_troubled_by_tenant, apipay.outbound_webhook_deliveries_troubled;
