package io.apipay;

/** The calls about payment intents. */
public final class PaymentIntents {
    private final Core core;

    PaymentIntents(Core core) {
        this.core = core;
    }

    /**
     * Makes a payment intent, and confirms it at once if asked to. Never sent twice.
     *
     * @param params the parameters
     * @return the answer
     */
    public PaymentIntent create(PaymentIntentCreateParams params) {
        return create(params, RequestOptions.NONE);
    }

    /**
     * Makes a payment intent, and confirms it at once if asked to. Never sent twice.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public PaymentIntent create(PaymentIntentCreateParams params, RequestOptions options) {
        return core.call("POST", Core.parts("payment-intents"), params, PaymentIntent::new, options);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public PaymentIntent confirm(String id, PaymentIntentConfirmParams params) {
        return confirm(id, params, RequestOptions.NONE);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @return the answer
     */
    public PaymentIntent confirm(String id) {
        return confirm(id, new PaymentIntentConfirmParams(), RequestOptions.NONE);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public PaymentIntent confirm(String id, PaymentIntentConfirmParams params, RequestOptions options) {
        return core.call("POST", Core.parts("payment-intents", id, "confirm"), Params.orNone(params),
                PaymentIntent::new, options);
    }

    /**
     * Cancels an intent that has not succeeded. Never sent twice.
     *
     * @param id the object's id
     * @return the answer
     */
    public PaymentIntent cancel(String id) {
        return cancel(id, RequestOptions.NONE);
    }

    /**
     * Cancels an intent that has not succeeded. Never sent twice.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public PaymentIntent cancel(String id, RequestOptions options) {
        return core.call("POST", Core.parts("payment-intents", id, "cancel"), null, PaymentIntent::new, options);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public Refund refund(String id, RefundParams params) {
        return refund(id, params, RequestOptions.NONE);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @return the answer
     */
    public Refund refund(String id) {
        return refund(id, new RefundParams(), RequestOptions.NONE);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Refund refund(String id, RefundParams params, RequestOptions options) {
        return core.call("POST", Core.parts("payment-intents", id, "refunds"), params, Refund::new, options);
    }

    /**
     * Reads a payment intent.
     *
     * @param id the object's id
     * @return the answer
     */
    public PaymentIntent get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads a payment intent.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public PaymentIntent get(String id, RequestOptions options) {
        return core.call("GET", Core.parts("payment-intents", id), null, PaymentIntent::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer
     */
    public Page<PaymentIntent> list(PaymentIntentListParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Page<PaymentIntent> list(PaymentIntentListParams params, RequestOptions options) {
        return core.call("GET", Core.parts("payment-intents"), params,
                members -> new Page<>(members, PaymentIntent::new), options);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<PaymentIntent> all(PaymentIntentListParams params) {
        return all(params, RequestOptions.NONE);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<PaymentIntent> all(PaymentIntentListParams params, RequestOptions options) {
        return new Pages<>(core, Core.parts("payment-intents"), params, PaymentIntent::new, options);
    }
}
