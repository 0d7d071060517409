package io.apipay;

/**
 * Calls ApiPay with futures; {@link ApiPay#async} gives one. Canceling a call's future ends the call: its CancellationException
 * has an {@link ApiPayException} as its cause, see {@link ApiPayException#of}.
 */
public final class ApiPayAsync {
    private final Core core;

    ApiPayAsync(Core core) {
        this.core = core;
    }

    /**
     * Payment intents.
     *
     * @return the calls
     */
    public PaymentIntentsAsync paymentIntents() {
        return new PaymentIntentsAsync(core);
    }

    /**
     * Refunds.
     *
     * @return the calls
     */
    public RefundsAsync refunds() {
        return new RefundsAsync(core);
    }

    /**
     * Webhook endpoints.
     *
     * @return the calls
     */
    public WebhookEndpointsAsync webhookEndpoints() {
        return new WebhookEndpointsAsync(core);
    }

    /**
     * Events.
     *
     * @return the calls
     */
    public EventsAsync events() {
        return new EventsAsync(core);
    }

    /** Prints no key. */
    @Override
    public String toString() {
        return "ApiPayAsync{" + core.baseUrl() + "}";
    }
}
