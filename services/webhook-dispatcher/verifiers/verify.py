"""Holds recorded deliveries against the PyPI packages stripe and standardwebhooks. Prints one line per verifier."""

import json
import sys

import stripe
from standardwebhooks.webhooks import Webhook

VERIFIERS = {
    "python stripe": lambda c: stripe.Webhook.construct_event(c["body"], c["headers"]["apipay-signature"], c["secret"], 300),
    "python standardwebhooks": lambda c: Webhook(c["secret"]).verify(c["body"], c["headers"]),
}

failed = False
with open(sys.argv[1], encoding="utf-8") as file:
    cases = json.load(file)
for name, verify in VERIFIERS.items():
    for case in cases:
        event, error = None, None
        try:
            event = verify(case)
        except Exception as e:  # each library has its own
            error = e
        if (error is None) != case["valid"] or case["valid"] and event["id"] != case["headers"]["webhook-id"]:
            print(f"{name}: {case['name']}: want valid={case['valid']}, got {error!r} {event}", file=sys.stderr)
            failed = True
    print(f"{name}: {len(cases)} cases")
sys.exit(failed)
