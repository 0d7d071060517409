package io.apipay;

/** The calls about refunds; PaymentIntents.refund makes one. */
public final class Refunds {
    private final Core core;

    Refunds(Core core) {
        this.core = core;
    }

    /**
     * Reads a refund.
     *
     * @param id the object's id
     * @return the answer
     */
    public Refund get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads a refund.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public Refund get(String id, RequestOptions options) {
        return core.call("GET", Core.parts("refunds", id), null, Refund::new, options);
    }

    /**
     * Reads one page of a payment intent's refunds.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @return the answer
     */
    public Page<Refund> list(String paymentIntent, PageParams params) {
        return list(paymentIntent, params, RequestOptions.NONE);
    }

    /**
     * Reads one page of a payment intent's refunds.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Page<Refund> list(String paymentIntent, PageParams params, RequestOptions options) {
        return core.call("GET", Core.parts("payment-intents", paymentIntent, "refunds"), params,
                members -> new Page<>(members, Refund::new), options);
    }

    /**
     * Walks over every refund of a payment intent.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<Refund> all(String paymentIntent, PageParams params) {
        return all(paymentIntent, params, RequestOptions.NONE);
    }

    /**
     * Walks over every refund of a payment intent.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @param options options of this call
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<Refund> all(String paymentIntent, PageParams params, RequestOptions options) {
        return new Pages<>(core, Core.parts("payment-intents", paymentIntent, "refunds"), params, Refund::new, options);
    }
}
