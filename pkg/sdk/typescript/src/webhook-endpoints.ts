import { type Call, type Config, every, run } from "./core.js";
import {
  type DeliveryStatus, type Event, type EventType, type Page, type Recovery, type WebhookDelivery, type WebhookEndpoint,
  type WebhookEndpointStatus, eventShape, pageShape, recoveryShape, webhookDeliveryShape, webhookEndpointShape,
} from "./models.js";
import type { RequestOptions } from "./options.js";
import type { Paging } from "./payment-intents.js";

export interface WebhookEndpointCreateParams {
  url: string;
  /** Types of events, or `["*"]`. */
  enabled_events: (EventType | "*")[];
  description?: string | undefined;
}

/** What is not given stays as it is. */
export interface WebhookEndpointUpdateParams {
  url?: string | undefined;
  enabled_events?: (EventType | "*")[] | undefined;
  description?: string | undefined;
  status?: WebhookEndpointStatus | undefined;
}

export interface RotateSecretParams {
  /** How long the old secret signs beside the new one: by default a day, 0 revokes it now. */
  overlap_seconds?: number | undefined;
}

export interface DeliveryListParams extends Paging {
  status?: DeliveryStatus | undefined;
}

const root = "webhook-endpoints";

const listed = (paging: Paging): Call<Page<WebhookEndpoint>> => ({
  method: "GET", path: [root], query: { ...paging }, shape: pageShape(webhookEndpointShape),
});

const deliveriesOf = (id: string, params: DeliveryListParams): Call<Page<WebhookDelivery>> => ({
  method: "GET", path: [root, id, "deliveries"], query: { ...params }, shape: pageShape(webhookDeliveryShape),
});

/** The calls about webhook endpoints and their deliveries. */
export class WebhookEndpoints {
  readonly #config: Config;

  /** @internal */
  constructor(config: Config) {
    this.#config = config;
  }

  /** Makes an endpoint. Its `secret` is shown only here; keep it. */
  create(params: WebhookEndpointCreateParams, options?: RequestOptions): Promise<WebhookEndpoint> {
    return run(this.#config, { method: "POST", path: [root], body: { ...params }, shape: webhookEndpointShape }, options);
  }

  /** Reads an endpoint. */
  get(id: string, options?: RequestOptions): Promise<WebhookEndpoint> {
    return run(this.#config, { method: "GET", path: [root, id], shape: webhookEndpointShape }, options);
  }

  /** Reads one page. */
  list(paging: Paging = {}, options?: RequestOptions): Promise<Page<WebhookEndpoint>> {
    return run(this.#config, listed(paging), options);
  }

  /** Walks over every endpoint. */
  all(paging: Paging = {}, options?: RequestOptions): AsyncGenerator<WebhookEndpoint, void, undefined> {
    return every(this.#config, listed(paging), options);
  }

  /** Changes what is given. */
  update(id: string, params: WebhookEndpointUpdateParams, options?: RequestOptions): Promise<WebhookEndpoint> {
    const call: Call<WebhookEndpoint> = {
      method: "PATCH", path: [root, id], body: { ...params }, atLeastBraces: true, shape: webhookEndpointShape,
    };
    return run(this.#config, call, options);
  }

  /** Deletes an endpoint; its deliveries stay listed. */
  delete(id: string, options?: RequestOptions): Promise<void> {
    return run<void>(this.#config, { method: "DELETE", path: [root, id], shape: undefined }, options);
  }

  /** Makes a new secret; it is shown only here. */
  rotateSecret(id: string, params: RotateSecretParams = {}, options?: RequestOptions): Promise<WebhookEndpoint> {
    const call: Call<WebhookEndpoint> = {
      method: "POST", path: [root, id, "rotate-secret"], body: { ...params }, shape: webhookEndpointShape,
    };
    return run(this.#config, call, options);
  }

  /** Sends a ping event to the endpoint and gives the event. */
  ping(id: string, options?: RequestOptions): Promise<Event> {
    return run(this.#config, { method: "POST", path: [root, id, "ping"], shape: eventShape }, options);
  }

  /** Reads one page of what was sent to the endpoint. */
  deliveries(id: string, params: DeliveryListParams = {}, options?: RequestOptions): Promise<Page<WebhookDelivery>> {
    return run(this.#config, deliveriesOf(id, params), options);
  }

  /** Walks over everything that was sent to the endpoint. */
  allDeliveries(id: string, params: DeliveryListParams = {}, options?: RequestOptions): AsyncGenerator<WebhookDelivery, void, undefined> {
    return every(this.#config, deliveriesOf(id, params), options);
  }

  /** Makes a failed delivery due now. */
  retryDelivery(id: string, delivery: string, options?: RequestOptions): Promise<WebhookDelivery> {
    const path = [root, id, "deliveries", delivery, "retry"];
    return run(this.#config, { method: "POST", path, shape: webhookDeliveryShape }, options);
  }

  /** Sends everything again that failed since a time in Unix seconds. */
  recover(id: string, params: { since: number }, options?: RequestOptions): Promise<Recovery> {
    return run(this.#config, { method: "POST", path: [root, id, "recover"], body: { ...params }, shape: recoveryShape }, options);
  }
}
