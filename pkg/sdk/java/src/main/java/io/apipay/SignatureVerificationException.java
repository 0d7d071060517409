package io.apipay;

/**
 * Says that a payload is not, or not recently, signed with any of the secrets. Answer 400 and do nothing else. Its text is
 * fixed: it never carries what was received.
 */
public final class SignatureVerificationException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    SignatureVerificationException(String reason) {
        super("apipay: webhook signature: " + reason);
    }
}
