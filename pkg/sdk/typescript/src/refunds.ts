import { type Call, type Config, every, run } from "./core.js";
import { type Page, type Refund, pageShape, refundShape } from "./models.js";
import type { RequestOptions } from "./options.js";
import type { Paging } from "./payment-intents.js";

const listed = (paymentIntent: string, paging: Paging): Call<Page<Refund>> => ({
  method: "GET", path: ["payment-intents", paymentIntent, "refunds"], query: { ...paging }, shape: pageShape(refundShape),
});

/** The calls about refunds; {@link PaymentIntents.refund} makes one. */
export class Refunds {
  readonly #config: Config;

  /** @internal */
  constructor(config: Config) {
    this.#config = config;
  }

  /** Reads a refund. */
  get(id: string, options?: RequestOptions): Promise<Refund> {
    return run(this.#config, { method: "GET", path: ["refunds", id], shape: refundShape }, options);
  }

  /** Reads one page of a payment intent's refunds. */
  list(paymentIntent: string, paging: Paging = {}, options?: RequestOptions): Promise<Page<Refund>> {
    return run(this.#config, listed(paymentIntent, paging), options);
  }

  /** Walks over every refund of a payment intent. */
  all(paymentIntent: string, paging: Paging = {}, options?: RequestOptions): AsyncGenerator<Refund, void, undefined> {
    return every(this.#config, listed(paymentIntent, paging), options);
  }
}
