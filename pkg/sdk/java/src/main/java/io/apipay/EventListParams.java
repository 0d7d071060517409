package io.apipay;

/** Filters of events. */
public final class EventListParams extends Params {
    /** No parameters yet. */
    public EventListParams() {}

    /**
     * Sets how many a page has, 1 to 100; the server's default is 10.
     *
     * @param value the value
     * @return this
     */
    public EventListParams limit(long value) {
        set("limit", value);
        return this;
    }

    /**
     * Sets where to begin: a page's nextCursor.
     *
     * @param value the value
     * @return this
     */
    public EventListParams cursor(String value) {
        set("cursor", value);
        return this;
    }

    /**
     * Sets the type to list.
     *
     * @param value the value
     * @return this
     */
    public EventListParams type(String value) {
        set("type", value);
        return this;
    }
}
