import { type Call, type Config, every, run } from "./core.js";
import { invalidResponse } from "./errors.js";
import {
  type Event, type EventType, type Page, type PaymentIntent, type Refund, type WebhookEndpoint, eventShape, pageShape,
  paymentIntentShape, refundShape, webhookEndpointShape,
} from "./models.js";
import type { RequestOptions } from "./options.js";
import type { Paging } from "./payment-intents.js";
import type { Shape } from "./shape.js";

export interface EventListParams extends Paging {
  type?: EventType | undefined;
}

const listed = (params: EventListParams): Call<Page<Event>> => ({
  method: "GET", path: ["events"], query: { ...params }, shape: pageShape(eventShape),
});

/** The calls about events. They are kept for 30 days. */
export class Events {
  readonly #config: Config;

  /** @internal */
  constructor(config: Config) {
    this.#config = config;
  }

  /** Reads an event. */
  get(id: string, options?: RequestOptions): Promise<Event> {
    return run(this.#config, { method: "GET", path: ["events", id], shape: eventShape }, options);
  }

  /** Reads one page. */
  list(params: EventListParams = {}, options?: RequestOptions): Promise<Page<Event>> {
    return run(this.#config, listed(params), options);
  }

  /** Walks over every page. */
  all(params: EventListParams = {}, options?: RequestOptions): AsyncGenerator<Event, void, undefined> {
    return every(this.#config, listed(params), options);
  }
}

function objectOf<T>(event: Event, shape: Shape<T>): T {
  try {
    return shape({ ...event.data?.object });
  } catch {
    throw invalidResponse("the event's object is not of this kind");
  }
}

/** The object of a payment_intent event. */
export const paymentIntentOf = (event: Event): PaymentIntent => objectOf(event, paymentIntentShape);

/** The object of a refund event. */
export const refundOf = (event: Event): Refund => objectOf(event, refundShape);

/** The object of a webhook_endpoint or ping event. */
export const webhookEndpointOf = (event: Event): WebhookEndpoint => objectOf(event, webhookEndpointShape);
