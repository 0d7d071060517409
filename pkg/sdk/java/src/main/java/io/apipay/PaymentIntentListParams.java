package io.apipay;

/** Filters of payment intents. */
public final class PaymentIntentListParams extends Params {
    /** No parameters yet. */
    public PaymentIntentListParams() {}

    /**
     * Sets how many a page has, 1 to 100; the server's default is 10.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams limit(long value) {
        set("limit", value);
        return this;
    }

    /**
     * Sets where to begin: a page's nextCursor.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams cursor(String value) {
        set("cursor", value);
        return this;
    }

    /**
     * Sets the status to list.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams status(String value) {
        set("status", value);
        return this;
    }

    /**
     * Sets the currency to list.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams currency(String value) {
        set("currency", value);
        return this;
    }

    /**
     * Sets the reference to find.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams merchantReference(String value) {
        set("merchant_reference", value);
        return this;
    }

    /**
     * Sets the earliest time, in Unix seconds.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams createdGte(long value) {
        set("created[gte]", value);
        return this;
    }

    /**
     * Sets the time before which to list, in Unix seconds.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentListParams createdLt(long value) {
        set("created[lt]", value);
        return this;
    }
}
