// A receiver of ApiPay's webhooks: it verifies each delivery and handles each event once.
import { createServer } from "node:http";

import { ApiPayError, SIGNATURE_HEADER, SignatureVerificationError, WebhookVerifier } from "@apipay/sdk";

// During a rotation: new WebhookVerifier([newSecret, oldSecret]).
const verifier = new WebhookVerifier(process.env.APIPAY_WEBHOOK_SECRET ?? "");
const seen = new Set(); // a table with a unique event id, in a real receiver

/** The bytes as they came. With Express: express.raw({ type: "application/json" }), and then request.body. */
async function bodyOf(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > 1 << 20) return undefined; // an event has at most 256 KiB
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

const server = createServer(async (request, response) => {
  try {
    const payload = await bodyOf(request);
    if (payload === undefined) {
      response.writeHead(413).end();
      return;
    }
    const event = verifier.constructEvent(payload, request.headers[SIGNATURE_HEADER.toLowerCase()]);
    // The same event can come twice, with the same id.
    if (!seen.has(event.id)) {
      seen.add(event.id);
      console.log(event.id, event.type);
    }
    response.writeHead(204).end();
  } catch (error) {
    const refused = error instanceof SignatureVerificationError || error instanceof ApiPayError;
    response.writeHead(refused ? 400 : 500).end();
  }
});
server.requestTimeout = 10_000;
server.listen(4242, "127.0.0.1");
