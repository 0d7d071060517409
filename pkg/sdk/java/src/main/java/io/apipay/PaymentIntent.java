package io.apipay;

import java.util.Map;

/** One payment. Statuses are texts, see {@link #status}: expect values that are not listed there. */
public final class PaymentIntent extends ApiObject {
    private final String id;
    private final long amount;
    private final long amountRefunded;
    private final String currency;
    private final String status;
    private final boolean livemode;
    private final long created;
    private final String description;
    private final Map<String, String> metadata;
    private final String merchantReference;
    private final String paymentMethod;
    private final PaymentError lastPaymentError;
    private final String latestAttempt;
    private final long version;

    PaymentIntent(Map<String, Object> members) {
        super(members);
        id = requiredText("id");
        amount = integer("amount");
        amountRefunded = integer("amount_refunded");
        currency = text("currency");
        status = text("status");
        livemode = bool("livemode");
        created = integer("created");
        description = text("description");
        metadata = texts("metadata");
        merchantReference = text("merchant_reference");
        paymentMethod = text("payment_method");
        lastPaymentError = objectOrNull("last_payment_error", PaymentError::new);
        latestAttempt = text("latest_attempt");
        version = integer("version");
    }

    /**
     * The id.
     *
     * @return {@code pi_...}
     */
    public String id() {
        return id;
    }

    /**
     * What is to be paid.
     *
     * @return the amount in the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY
     */
    public long amount() {
        return amount;
    }

    /**
     * What was given back.
     *
     * @return the amount in the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY
     */
    public long amountRefunded() {
        return amountRefunded;
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
     * The state: {@code requires_payment_method}, {@code requires_confirmation}, {@code processing}, {@code succeeded} or {@code canceled}.
     *
     * @return the status
     */
    public String status() {
        return status;
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
     * Your text.
     *
     * @return the text, or null
     */
    public String description() {
        return description;
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
     * Your reference.
     *
     * @return the reference, or null
     */
    public String merchantReference() {
        return merchantReference;
    }

    /**
     * What is charged.
     *
     * @return the id, or null
     */
    public String paymentMethod() {
        return paymentMethod;
    }

    /**
     * Why the last attempt failed.
     *
     * @return the error, or null
     */
    public PaymentError lastPaymentError() {
        return lastPaymentError;
    }

    /**
     * The last attempt.
     *
     * @return its id, or null
     */
    public String latestAttempt() {
        return latestAttempt;
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
