// Holds recorded deliveries against the npm packages stripe and standardwebhooks. Prints one line per verifier.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(process.env.VERIFIERS_DIR + '/');
const Stripe = require('stripe');
const { Webhook } = require('standardwebhooks');

const stripe = new (Stripe.default ?? Stripe)('sk_test_unused');
const verifiers = {
  'node stripe': (c) => stripe.webhooks.constructEvent(c.body, c.headers['apipay-signature'], c.secret, 300),
  'node standardwebhooks': (c) => new Webhook(c.secret).verify(c.body, c.headers),
};
const cases = JSON.parse(readFileSync(process.argv[2], 'utf8'));
for (const [name, verify] of Object.entries(verifiers)) {
  for (const c of cases) {
    let event = null;
    let error = null;
    try {
      event = verify(c);
    } catch (e) {
      error = e;
    }
    if ((error === null) !== c.valid || (c.valid && event.id !== c.headers['webhook-id'])) {
      console.error(`${name}: ${c.name}: want ${c.valid ? 'accepted' : 'refused'}, got ${error ?? JSON.stringify(event)}`);
      process.exitCode = 1;
    }
  }
  console.log(`${name}: ${cases.length} cases`);
}
