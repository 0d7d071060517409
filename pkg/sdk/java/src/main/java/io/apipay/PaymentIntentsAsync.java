package io.apipay;

import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;

/** The calls about payment intents; each begins at once and gives a future. */
public final class PaymentIntentsAsync {
    private final Core core;

    PaymentIntentsAsync(Core core) {
        this.core = core;
    }

    /**
     * Makes a payment intent, and confirms it at once if asked to. Never sent twice.
     *
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> create(PaymentIntentCreateParams params) {
        return create(params, RequestOptions.NONE);
    }

    /**
     * Makes a payment intent, and confirms it at once if asked to. Never sent twice.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> create(PaymentIntentCreateParams params, RequestOptions options) {
        return core.start("POST", Core.parts("payment-intents"), params, PaymentIntent::new, options);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> confirm(String id, PaymentIntentConfirmParams params) {
        return confirm(id, params, RequestOptions.NONE);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> confirm(String id) {
        return confirm(id, new PaymentIntentConfirmParams(), RequestOptions.NONE);
    }

    /**
     * Charges the payment method; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> confirm(String id, PaymentIntentConfirmParams params, RequestOptions options) {
        return core.start("POST", Core.parts("payment-intents", id, "confirm"), Params.orNone(params),
                PaymentIntent::new, options);
    }

    /**
     * Cancels an intent that has not succeeded. Never sent twice.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> cancel(String id) {
        return cancel(id, RequestOptions.NONE);
    }

    /**
     * Cancels an intent that has not succeeded. Never sent twice.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> cancel(String id, RequestOptions options) {
        return core.start("POST", Core.parts("payment-intents", id, "cancel"), null, PaymentIntent::new, options);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Refund> refund(String id, RefundParams params) {
        return refund(id, params, RequestOptions.NONE);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<Refund> refund(String id) {
        return refund(id, new RefundParams(), RequestOptions.NONE);
    }

    /**
     * Gives money back. Never sent twice.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Refund> refund(String id, RefundParams params, RequestOptions options) {
        return core.start("POST", Core.parts("payment-intents", id, "refunds"), params, Refund::new, options);
    }

    /**
     * Reads a payment intent.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads a payment intent.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<PaymentIntent> get(String id, RequestOptions options) {
        return core.start("GET", Core.parts("payment-intents", id), null, PaymentIntent::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<PaymentIntent>> list(PaymentIntentListParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<PaymentIntent>> list(PaymentIntentListParams params, RequestOptions options) {
        return core.start("GET", Core.parts("payment-intents"), params,
                members -> new Page<>(members, PaymentIntent::new), options);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(PaymentIntentListParams params, Predicate<? super PaymentIntent> each) {
        return all(params, each, RequestOptions.NONE);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @param options options of this call
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(PaymentIntentListParams params, Predicate<? super PaymentIntent> each, RequestOptions options) {
        return Pages.forEach(core, Core.parts("payment-intents"), params, PaymentIntent::new, options, each);
    }
}
