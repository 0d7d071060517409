package io.apipay;

/** Filters of deliveries. */
public final class DeliveryListParams extends Params {
    /** No parameters yet. */
    public DeliveryListParams() {}

    /**
     * Sets how many a page has, 1 to 100; the server's default is 10.
     *
     * @param value the value
     * @return this
     */
    public DeliveryListParams limit(long value) {
        set("limit", value);
        return this;
    }

    /**
     * Sets where to begin: a page's nextCursor.
     *
     * @param value the value
     * @return this
     */
    public DeliveryListParams cursor(String value) {
        set("cursor", value);
        return this;
    }

    /**
     * Sets the status to list.
     *
     * @param value the value
     * @return this
     */
    public DeliveryListParams status(String value) {
        set("status", value);
        return this;
    }
}
