package io.apipay;

import java.util.Map;

/** Why the last attempt of a payment failed. */
public final class PaymentError extends ApiObject {
    private final String code;
    private final String declineCode;
    private final String message;

    PaymentError(Map<String, Object> members) {
        super(members);
        code = text("code");
        declineCode = text("decline_code");
        message = text("message");
    }

    /**
     * The code.
     *
     * @return the code
     */
    public String code() {
        return code;
    }

    /**
     * Why the card was declined.
     *
     * @return the code, or null
     */
    public String declineCode() {
        return declineCode;
    }

    /**
     * The same, for people.
     *
     * @return the text, or null
     */
    public String message() {
        return message;
    }
}
