// What the vectors of pkg/sdk/conformance do not reach: things of fetch. They play against sockets too.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";

import { ApiPay } from "../dist/esm/index.js";

const KEY = "apk_test_KEYMARKER";

/** Plays `answer(socket, request)` to each request, whose head and body came whole, and lists them. */
async function serve(t, answer) {
  const requests = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    let received = "";
    socket.on("data", (data) => {
      received += data.toString("latin1");
      const end = received.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = received.slice(0, end);
      const length = Number(/^content-length: ([0-9]+)$/im.exec(head)?.[1] ?? 0);
      if (received.length < end + 4 + length) return;
      const request = { head, line: head.split("\r\n")[0], body: received.slice(end + 4) };
      received = "";
      requests.push(request);
      answer(socket, request, requests.length);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { baseURL: `http://127.0.0.1:${server.address().port}`, requests };
}

const reply = (status, body = "{}", headers = "") => (socket) =>
  socket.write(`HTTP/1.1 ${status} Status\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`);

const failure = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("the call succeeded");
};

for (const status of [401, 421]) {
  test(`a request that moves money is sent once, also after ${status}`, async (t) => {
    const { baseURL, requests } = await serve(t, reply(status, "{}", "WWW-Authenticate: Basic\r\n"));
    const client = new ApiPay(KEY, { baseURL });
    const calls = [
      () => client.paymentIntents.create({ amount: 1000, currency: "EUR" }),
      () => client.paymentIntents.cancel("pi_1"),
      () => client.webhookEndpoints.update("we_1", { status: "enabled" }),
      () => client.webhookEndpoints.delete("we_1"),
    ];
    for (const [i, call] of calls.entries()) {
      const error = await failure(call());
      assert.equal(error.status, status);
      assert.equal(requests.length, i + 1);
    }
    assert.equal(requests[0].body, '{"amount":1000,"currency":"EUR"}');
    assert.match(requests[1].head, /^content-length: 0$/im);
    for (const { head } of requests) assert.doesNotMatch(head, /transfer-encoding/i);
  });
}

test("the timeout covers an answer that drips", async (t) => {
  const { baseURL, requests } = await serve(t, (socket) => {
    socket.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    const timer = setInterval(() => socket.write("x"), 50);
    socket.on("close", () => clearInterval(timer));
  });
  const started = performance.now();
  const error = await failure(new ApiPay(KEY, { baseURL, timeoutMs: 400 }).paymentIntents.get("pi_1"));
  assert.equal(error.kind, "timeout");
  assert.equal(error.attempts, 1);
  assert.ok(performance.now() - started < 3000);
  assert.equal(requests.length, 1);
});

test("AbortSignal.timeout is a timeout, and tells the key", async (t) => {
  const { baseURL, requests } = await serve(t, () => {});
  const options = { signal: AbortSignal.timeout(300), idempotencyKey: "order-1" };
  const error = await failure(new ApiPay(KEY, { baseURL }).paymentIntents.cancel("pi_1", options));
  assert.equal(error.kind, "timeout");
  assert.equal(error.idempotencyKey, "order-1");
  assert.equal(requests.length, 1);
});

test("calls in turn use one connection", async (t) => {
  const ports = new Set();
  const { baseURL } = await serve(t, (socket) => {
    ports.add(socket.remotePort);
    reply(200, '{"id":"pi_1","amount":1,"currency":"EUR","status":"succeeded"}')(socket);
  });
  const client = new ApiPay(KEY, { baseURL });
  for (let i = 0; i < 20; i++) await client.paymentIntents.get("pi_1");
  assert.equal(ports.size, 1);
});

test("the amount of an answer is exact or refused, and other integers are bigints", async (t) => {
  const bodies = [
    '{"id":"pi_1","amount":9007199254740991,"currency":"EUR","status":"s","x":[9007199254740993,"9007199254740993",1.5],"y":-9007199254740993}',
    '{"id":"pi_1","amount":9007199254740992,"currency":"EUR","status":"s"}',
    '{"id":"pi_1","amount":1e300,"currency":"EUR","status":"s"}',
    '{"id":"pi_1","amount":1.5,"currency":"EUR","status":"s"}',
    '{"amount":1,"currency":"EUR","status":"s"}',
  ];
  const { baseURL } = await serve(t, (socket, _, n) => reply(200, bodies[n - 1])(socket));
  const client = new ApiPay(KEY, { baseURL });
  const intent = await client.paymentIntents.get("pi_1");
  assert.equal(intent.amount, 9007199254740991);
  assert.deepEqual(intent.x, [9007199254740993n, "9007199254740993", 1.5]);
  assert.equal(intent.y, -9007199254740993n);
  for (let i = 1; i < bodies.length; i++) assert.equal((await failure(client.paymentIntents.get("pi_1"))).code, "invalid_response");
});

test("an amount that is no safe integer is refused before anything is sent", async () => {
  const client = new ApiPay(KEY, { baseURL: "http://127.0.0.1:1" });
  for (const amount of [1.5, 2 ** 53, NaN, 10n]) {
    assert.equal((await failure(client.paymentIntents.create({ amount, currency: "EUR" }))).kind, "argument");
  }
});

test("onResponse tells how a call was answered", async (t) => {
  const { baseURL } = await serve(
    t, reply(201, '{"id":"pi_1","amount":1,"currency":"EUR","status":"s"}', "Idempotent-Replayed: true\r\nX-Request-Id: req_1\r\n"),
  );
  let told;
  const options = { idempotencyKey: "order-1", onResponse: (response) => (told = response) };
  await new ApiPay(KEY, { baseURL }).paymentIntents.create({ amount: 1, currency: "EUR" }, options);
  assert.deepEqual(told, { status: 201, requestId: "req_1", idempotencyKey: "order-1", replayed: true, attempts: 1 });
});

test("a fetch of one's own is used", async () => {
  let sent;
  const fetch = async (url, options) => {
    sent = { url, ...options };
    return new Response('{"id":"re_1","amount":1,"currency":"EUR","status":"pending"}');
  };
  await new ApiPay(KEY, { fetch }).refunds.get("re_1");
  assert.equal(sent.url, "https://api.apipay.io/v1/refunds/re_1");
  assert.equal(sent.redirect, "manual");
});
