// The running stack as a merchant and its receivers see it, and what only the database can set up.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import pg from "pg";

export const hostile = `<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><a href="javascript:window.pwned = 3">ok</a>`;

/** The stack of APIPAY_DEV_DIR. */
export function stack() {
  return JSON.parse(readFileSync(join(process.env.APIPAY_DEV_DIR ?? ".dev", "stack.json"), "utf8"));
}

/** A receiver of webhooks whose answer can be changed at any time. */
export async function receiver() {
  const state = { answer: { status: 200, body: "ok" }, seen: [] };
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      state.seen.push(request.headers["webhook-id"]);
      response.writeHead(state.answer.status, { "Content-Type": "text/html" }).end(state.answer.body);
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  state.url = `http://127.0.0.1:${server.address().port}/hooks`;
  state.close = () => new Promise((done) => { server.closeAllConnections(); server.close(done); });
  return state;
}

/** payment-api with the demo tenant's key of test mode. */
export function merchant({ urls, demo }) {
  return async (method, path, body) => {
    const response = await fetch(urls.payment_api + path, {
      method,
      headers: { Authorization: `Bearer ${demo.api_key_test}`, "Content-Type": "application/json", "Idempotency-Key": randomUUID() },
      body: body && JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return answer;
  };
}

/** admin-api with the token of a role. */
export function admin({ urls, demo }, role) {
  return async (method, path, body) => {
    const response = await fetch(urls.admin_api + path, {
      method,
      headers: { Authorization: `Bearer ${demo.tokens[role]}`, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
    return { status: response.status, body: response.status === 204 ? null : await response.json() };
  };
}

/** Asks until the answer is truthy. */
export async function until(ask, what, ms = 20_000) {
  for (const end = Date.now() + ms; Date.now() < end; ) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`not in time: ${what}`);
}

/** Rows that a healthy stack does not make: a parked event, a quarantined record, an unknown outcome, a week of health. */
export async function trouble({ postgres }, endpointID) {
  const client = new pg.Client({ connectionString: postgres.owner.replace("?sslmode=disable", "") });
  await client.connect();
  try {
    const { rows: [endpoint] } = await client.query(
      `SELECT id, tenant_id FROM apipay.webhook_endpoints WHERE url = $1`, [endpointID]);
    const tenant = endpoint.tenant_id;
    await client.query(`INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, parked_at, parked_reason)
      VALUES (apipay.uuid7_beside(gen_random_uuid()), $1, false, 'apipay.outbound-webhooks.v1', 7, 'payment_intent.succeeded', convert_to(repeat('x', 2000), 'UTF8'),
        now(), 'MESSAGE_TOO_LARGE: the broker takes at most 1048588 bytes')`, [tenant]);
    await client.query(`INSERT INTO apipay.quarantined_records (id, tenant_id, kafka_topic, kafka_partition, kafka_offset, key, value, reason, detail)
      VALUES (gen_random_uuid(), $1, 'apipay.outbound-webhooks.v1', 3, (extract(epoch FROM now()) * 1000)::bigint, 'k', 'not json', 'not_json', 'unexpected character at offset 0')`, [tenant]);
    const { rows: [ids] } = await client.query(`SELECT gen_random_uuid() AS intent, gen_random_uuid() AS attempt`);
    await client.query(`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, latest_attempt, merchant_reference)
      VALUES ($1, $2, false, 129900, 'EUR', 'processing', 'pm_card_visa', $3, $4)`, [ids.intent, tenant, ids.attempt, "order-" + ids.intent.slice(0, 8)]);
    await client.query(`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency,
        payment_method, gateway, prior_status, prior_payment_method, lease_until, next_check_at, check_count)
      VALUES ($1, $2, false, $3, 'charge', 1, 'unknown', 129900, 'EUR', 'pm_card_visa', 'sandbox', 'requires_confirmation', 'pm_card_visa',
        now() - interval '1 hour', now() + interval '1 day', 9)`, [ids.attempt, tenant, ids.intent]);
    await client.query(`INSERT INTO apipay.webhook_endpoint_health (endpoint_id, hour, tenant_id, livemode, succeeded, failed, latency_buckets, failures)
      SELECT $1, date_trunc('hour', now()) - i * interval '1 hour', $2, false, 80 + (i * 37) % 60, CASE WHEN i % 24 < 5 THEN (i * 13) % 40 ELSE i % 3 END,
        ARRAY[0, 10 + i % 7, 40, 30 + i % 11, 15, 5 + i % 5, 3, i % 3, i % 2, 0, 0],
        CASE WHEN i % 24 < 5 THEN jsonb_build_object('status', (i * 13) % 40, 'timeout', i % 4) ELSE jsonb_build_object('timeout', i % 3) END
      FROM generate_series(1, 160) i ON CONFLICT DO NOTHING`, [endpoint.id, tenant]);
    return ids;
  } finally {
    await client.end();
  }
}
