package io.apipay;

import java.util.Map;

/** Parameters of creating a payment intent. */
public final class PaymentIntentCreateParams extends Params {
    /**
     * The required parameters.
     *
     * @param amount in the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY
     * @param currency the ISO 4217 code
     */
    public PaymentIntentCreateParams(long amount, String currency) {
        set("amount", amount);
        set("currency", currency);
    }

    /**
     * Sets what to charge.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentCreateParams paymentMethod(String value) {
        set("payment_method", value);
        return this;
    }

    /**
     * Sets whether to charge at once.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentCreateParams confirm(boolean value) {
        set("confirm", value);
        return this;
    }

    /**
     * Sets your text.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentCreateParams description(String value) {
        set("description", value);
        return this;
    }

    /**
     * Sets your data.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentCreateParams metadata(Map<String, String> value) {
        set("metadata", value);
        return this;
    }

    /**
     * Sets your reference; it can be used once.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentCreateParams merchantReference(String value) {
        set("merchant_reference", value);
        return this;
    }
}
