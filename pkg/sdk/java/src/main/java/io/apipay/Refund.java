package io.apipay;

import java.util.Map;

/** Money given back. */
public final class Refund extends ApiObject {
    private final String id;
    private final String paymentIntent;
    private final long amount;
    private final String currency;
    private final String status;
    private final String failureReason;
    private final String reason;
    private final Map<String, String> metadata;
    private final boolean livemode;
    private final long created;
    private final long version;

    Refund(Map<String, Object> members) {
        super(members);
        id = requiredText("id");
        paymentIntent = text("payment_intent");
        amount = integer("amount");
        currency = text("currency");
        status = text("status");
        failureReason = text("failure_reason");
        reason = text("reason");
        metadata = texts("metadata");
        livemode = bool("livemode");
        created = integer("created");
        version = integer("version");
    }

    /**
     * The id.
     *
     * @return {@code re_...}
     */
    public String id() {
        return id;
    }

    /**
     * The payment.
     *
     * @return its id
     */
    public String paymentIntent() {
        return paymentIntent;
    }

    /**
     * What is given back.
     *
     * @return the amount in the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY
     */
    public long amount() {
        return amount;
    }

    /**
     * The currency.
     *
     * @return the ISO 4217 code in upper case
     */
    public String currency() {
        return currency;
    }

    /**
     * The state: {@code pending}, {@code succeeded} or {@code failed}; expect others.
     *
     * @return the status
     */
    public String status() {
        return status;
    }

    /**
     * Why it failed.
     *
     * @return the reason, or null
     */
    public String failureReason() {
        return failureReason;
    }

    /**
     * Your reason.
     *
     * @return the reason, or null
     */
    public String reason() {
        return reason;
    }

    /**
     * Your data.
     *
     * @return texts by name
     */
    public Map<String, String> metadata() {
        return metadata;
    }

    /**
     * Says if real money is meant.
     *
     * @return true in live mode
     */
    public boolean livemode() {
        return livemode;
    }

    /**
     * When it was made.
     *
     * @return Unix seconds
     */
    public long created() {
        return created;
    }

    /**
     * Rises by one with each event about the object: of two, the higher is later.
     *
     * @return the version
     */
    public long version() {
        return version;
    }
}
