package io.apipay;

/** Parameters of every list. */
public final class PageParams extends Params {
    /** No parameters yet. */
    public PageParams() {}

    /**
     * Sets how many a page has, 1 to 100; the server's default is 10.
     *
     * @param value the value
     * @return this
     */
    public PageParams limit(long value) {
        set("limit", value);
        return this;
    }

    /**
     * Sets where to begin: a page's nextCursor.
     *
     * @param value the value
     * @return this
     */
    public PageParams cursor(String value) {
        set("cursor", value);
        return this;
    }
}
