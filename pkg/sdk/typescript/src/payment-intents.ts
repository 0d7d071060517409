import { type Call, type Config, every, run } from "./core.js";
import { type Page, type PaymentIntent, type PaymentIntentStatus, type Refund, pageShape, paymentIntentShape, refundShape } from "./models.js";
import type { RequestOptions } from "./options.js";

/** Parameters of every list. Without any it is the first page, with the server's default of 10. */
export interface Paging {
  /** 1 to 100. */
  limit?: number | undefined;
  /** A page's `next_cursor`. */
  cursor?: string | undefined;
}

export interface PaymentIntentCreateParams {
  amount: number;
  currency: string;
  payment_method?: string | undefined;
  /** Confirms the intent at once. */
  confirm?: boolean | undefined;
  description?: string | undefined;
  metadata?: Record<string, string> | undefined;
  merchant_reference?: string | undefined;
}

export interface PaymentIntentConfirmParams {
  payment_method?: string | undefined;
}

export interface RefundParams {
  /** Without it: all that is left. */
  amount?: number | undefined;
  reason?: string | undefined;
  metadata?: Record<string, string> | undefined;
}

export interface PaymentIntentListParams extends Paging {
  status?: PaymentIntentStatus | undefined;
  currency?: string | undefined;
  merchant_reference?: string | undefined;
  /** Unix seconds: from, and before. */
  created?: { gte?: number | undefined; lt?: number | undefined } | undefined;
}

const post = (path: string[], body?: object): Call<PaymentIntent> => ({
  method: "POST", path: ["payment-intents", ...path], body: body && { ...body }, shape: paymentIntentShape,
});

const listed = ({ created, ...filters }: PaymentIntentListParams): Call<Page<PaymentIntent>> => ({
  method: "GET", path: ["payment-intents"], shape: pageShape(paymentIntentShape),
  query: { ...filters, "created[gte]": created?.gte, "created[lt]": created?.lt },
});

/** The calls about payment intents. Those that move money are never sent twice; see {@link ApiPayError}. */
export class PaymentIntents {
  readonly #config: Config;

  /** @internal */
  constructor(config: Config) {
    this.#config = config;
  }

  /** Makes a payment intent, and confirms it at once with `confirm: true`. */
  create(params: PaymentIntentCreateParams, options?: RequestOptions): Promise<PaymentIntent> {
    return run(this.#config, post([], params), options);
  }

  /** Charges the payment method. The status is `processing` while the outcome is unknown. */
  confirm(id: string, params: PaymentIntentConfirmParams = {}, options?: RequestOptions): Promise<PaymentIntent> {
    return run(this.#config, post([id, "confirm"], params), options);
  }

  /** Cancels an intent that has not succeeded. */
  cancel(id: string, options?: RequestOptions): Promise<PaymentIntent> {
    return run(this.#config, post([id, "cancel"]), options);
  }

  /** Gives back `amount`, or all that is left. */
  refund(id: string, params: RefundParams = {}, options?: RequestOptions): Promise<Refund> {
    const call: Call<Refund> = {
      method: "POST", path: ["payment-intents", id, "refunds"], body: { ...params }, atLeastBraces: true, shape: refundShape,
    };
    return run(this.#config, call, options);
  }

  /** Reads a payment intent. */
  get(id: string, options?: RequestOptions): Promise<PaymentIntent> {
    return run(this.#config, { method: "GET", path: ["payment-intents", id], shape: paymentIntentShape }, options);
  }

  /** Reads one page. */
  list(params: PaymentIntentListParams = {}, options?: RequestOptions): Promise<Page<PaymentIntent>> {
    return run(this.#config, listed(params), options);
  }

  /** Walks over every page, from `params.cursor` on. */
  all(params: PaymentIntentListParams = {}, options?: RequestOptions): AsyncGenerator<PaymentIntent, void, undefined> {
    return every(this.#config, listed(params), options);
  }
}
