import { type Config, sleep } from "./core.js";
import { Events } from "./events.js";
import { type ClientOptions, checkedApiKey, checkedBaseURL, checkedMs, checkedRetries } from "./options.js";
import { PaymentIntents } from "./payment-intents.js";
import { Refunds } from "./refunds.js";
import { WebhookEndpoints } from "./webhook-endpoints.js";

/** Where ApiPay is reached unless `baseURL` says otherwise. */
export const DEFAULT_BASE_URL = "https://api.apipay.io";

/** A client for one API key, `apk_test_...` or `apk_live_...`. Connections are fetch's, and shared by all clients. */
export class ApiPay {
  readonly paymentIntents: PaymentIntents;
  readonly refunds: Refunds;
  readonly webhookEndpoints: WebhookEndpoints;
  readonly events: Events;
  readonly #config: Config;

  constructor(apiKey: string, options: ClientOptions = {}) {
    const authorization = `Bearer ${checkedApiKey(apiKey)}`;
    this.#config = {
      baseURL: checkedBaseURL(options.baseURL ?? DEFAULT_BASE_URL),
      authorization: () => authorization,
      timeoutMs: checkedMs("timeoutMs", options.timeoutMs ?? 30_000),
      maxRetries: checkedRetries(options.maxRetries ?? 2),
      fetch: options.fetch ?? ((...args) => globalThis.fetch(...args)),
      clock: options.clock ?? Date.now,
      sleeper: options.sleeper ?? sleep,
      random: options.random ?? Math.random,
    };
    this.paymentIntents = new PaymentIntents(this.#config);
    this.refunds = new Refunds(this.#config);
    this.webhookEndpoints = new WebhookEndpoints(this.#config);
    this.events = new Events(this.#config);
  }

  toString(): string {
    return `ApiPay(${this.#config.baseURL})`;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}
