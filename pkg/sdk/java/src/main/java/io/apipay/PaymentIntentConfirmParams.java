package io.apipay;

/** Parameters of confirming; without any, the intent's own payment method is charged. */
public final class PaymentIntentConfirmParams extends Params {
    /** No parameters yet. */
    public PaymentIntentConfirmParams() {}

    /**
     * Sets what to charge.
     *
     * @param value the value
     * @return this
     */
    public PaymentIntentConfirmParams paymentMethod(String value) {
        set("payment_method", value);
        return this;
    }
}
