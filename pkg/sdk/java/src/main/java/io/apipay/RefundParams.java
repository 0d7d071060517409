package io.apipay;

import java.util.Map;

/** Parameters of a refund. */
public final class RefundParams extends Params {
    /** No parameters yet. */
    public RefundParams() {}

    /**
     * Sets how much, in the minor unit; if not set, all that is left.
     *
     * @param value the value
     * @return this
     */
    public RefundParams amount(long value) {
        set("amount", value);
        return this;
    }

    /**
     * Sets your reason.
     *
     * @param value the value
     * @return this
     */
    public RefundParams reason(String value) {
        set("reason", value);
        return this;
    }

    /**
     * Sets your data.
     *
     * @param value the value
     * @return this
     */
    public RefundParams metadata(Map<String, String> value) {
        set("metadata", value);
        return this;
    }
}
