"""A receiver of ApiPay's webhooks: it verifies each delivery and handles each event once."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from apipay import SIGNATURE_HEADER, ApiPayError, SignatureVerificationError, WebhookVerifier

# During a rotation: WebhookVerifier(new_secret, old_secret).
verifier = WebhookVerifier(os.environ["APIPAY_WEBHOOK_SECRET"])
seen: set[str] = set()  # a table with a unique event id, in a real receiver


class Hooks(BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > 1 << 20:  # an event has at most 256 KiB
            self.answer(413)
            return
        # The bytes as they came; with Flask request.get_data(), with Django request.body, with FastAPI await request.body().
        payload = self.rfile.read(length)
        try:
            event = verifier.construct_event(payload, self.headers.get(SIGNATURE_HEADER))
        except (SignatureVerificationError, ApiPayError):
            self.answer(400)
            return
        # The same event can come twice, with the same id.
        if event.id not in seen:
            seen.add(event.id)
            print(event.id, event.type, flush=True)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 4242), Hooks).serve_forever()
