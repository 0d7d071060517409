package io.apipay;

import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;

/** The calls about refunds; PaymentIntents.refund makes one; each begins at once and gives a future. */
public final class RefundsAsync {
    private final Core core;

    RefundsAsync(Core core) {
        this.core = core;
    }

    /**
     * Reads a refund.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<Refund> get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads a refund.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Refund> get(String id, RequestOptions options) {
        return core.start("GET", Core.parts("refunds", id), null, Refund::new, options);
    }

    /**
     * Reads one page of a payment intent's refunds.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<Refund>> list(String paymentIntent, PageParams params) {
        return list(paymentIntent, params, RequestOptions.NONE);
    }

    /**
     * Reads one page of a payment intent's refunds.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<Refund>> list(String paymentIntent, PageParams params, RequestOptions options) {
        return core.start("GET", Core.parts("payment-intents", paymentIntent, "refunds"), params,
                members -> new Page<>(members, Refund::new), options);
    }

    /**
     * Walks over every refund of a payment intent.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(String paymentIntent, PageParams params, Predicate<? super Refund> each) {
        return all(paymentIntent, params, each, RequestOptions.NONE);
    }

    /**
     * Walks over every refund of a payment intent.
     *
     * @param paymentIntent the payment's id
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @param options options of this call
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(String paymentIntent, PageParams params, Predicate<? super Refund> each, RequestOptions options) {
        return Pages.forEach(core, Core.parts("payment-intents", paymentIntent, "refunds"), params, Refund::new, options, each);
    }
}
