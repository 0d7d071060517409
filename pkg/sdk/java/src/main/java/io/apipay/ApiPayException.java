package io.apipay;

import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * What every call of the SDK fails with.
 *
 * <p>After an error of a POST, store {@link #idempotencyKey} and call again with the same key, and the same parameters, until
 * there is an answer: the same key can never charge twice. A new key is a new charge.
 *
 * <p>Its printed forms tell what happened and never what the server or you wrote: no detail, no body, no credentials.
 * {@link #problem} and {@link #body} have those.
 */
public final class ApiPayException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** The stage at which a call failed. */
    public enum Kind {
        /** An answer that is not 2xx; a redirect is one, since none is followed. */
        API,
        /** A connection that could not be made, or broke before the answer was complete. */
        CONNECTION,
        /** The timeout or the deadline was reached. */
        TIMEOUT,
        /** The future was canceled or the thread interrupted. */
        CANCELED,
        /** A 2xx answer, a page or an event that cannot be read. */
        DECODE,
        /** Refused before anything was sent. */
        ARGUMENT
    }

    private final Kind kind;
    private final String code;
    private final int status;
    private final transient Problem problem;
    private final transient byte[] body;
    private final String requestId;
    private final String idempotencyKey;
    private final String retryAfterHeader;
    private final long retryAfterSeconds;
    private final int attempts;

    ApiPayException(Builder b) {
        super(b.message(), b.cause);
        kind = b.kind;
        code = b.code;
        status = b.status;
        problem = b.problem;
        body = b.body;
        requestId = b.requestId;
        idempotencyKey = b.idempotencyKey;
        retryAfterHeader = b.retryAfterHeader;
        retryAfterSeconds = b.retryAfter.orElse(-1);
        attempts = b.attempts;
    }

    static ApiPayException refusal(String reason) {
        Builder b = new Builder();
        b.kind = Kind.ARGUMENT;
        b.code = ErrorCode.INVALID_ARGUMENT;
        b.cause = new IllegalArgumentException(reason);
        return b.build();
    }

    /**
     * Finds the SDK's exception in what a future failed with, which may be a CompletionException, an ExecutionException or a
     * CancellationException around it.
     *
     * @param failure any throwable
     * @return the exception, or empty
     */
    public static Optional<ApiPayException> of(Throwable failure) {
        int depth = 0;
        for (Throwable t = failure; t != null && depth < 20; t = t.getCause(), depth++) {
            if (t instanceof ApiPayException e) {
                return Optional.of(e);
            }
        }
        return Optional.empty();
    }

    /**
     * The stage at which the call failed.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * The stable code to branch on, see {@link ErrorCode}.
     *
     * @return the code, never null
     */
    public String code() {
        return code;
    }

    /**
     * The answer's HTTP status. A call that was canceled while it waited for a retry has that of the answer before the wait.
     *
     * @return the status, 0 without an answer
     */
    public int status() {
        return status;
    }

    /**
     * The answer's problem document.
     *
     * @return the problem, or null if the body is no JSON object
     */
    public Problem problem() {
        return problem;
    }

    /**
     * The answer's raw body, its first MiB at most.
     *
     * @return a copy of the bytes, empty without an answer
     */
    public byte[] body() {
        return body == null ? new byte[0] : body.clone();
    }

    /**
     * The body as text.
     *
     * @return the text
     */
    public String bodyText() {
        return new String(body(), StandardCharsets.UTF_8);
    }

    /**
     * Names the call in ApiPay's logs: the answer's X-Request-Id.
     *
     * @return the id, or null
     */
    public String requestId() {
        return requestId;
    }

    /**
     * The key that the POST was, or would have been, sent with. Store it, and call again with it.
     *
     * @return the key, or null if it was no POST
     */
    public String idempotencyKey() {
        return idempotencyKey;
    }

    /**
     * What the answer's Retry-After asks for, in whole seconds from when the answer came.
     *
     * @return the seconds, or empty if there is none or it is unusable
     */
    public OptionalLong retryAfter() {
        return retryAfterSeconds < 0 ? OptionalLong.empty() : OptionalLong.of(retryAfterSeconds);
    }

    /**
     * The text of Retry-After, also when it is unusable.
     *
     * @return the text, or null
     */
    public String retryAfterHeader() {
        return retryAfterHeader;
    }

    /**
     * How many attempts were begun.
     *
     * @return the number
     */
    public int attempts() {
        return attempts;
    }

    /** Collects what is known of a failure. */
    static final class Builder {
        Kind kind;
        String code;
        int status;
        Problem problem;
        byte[] body;
        String requestId;
        String idempotencyKey;
        String retryAfterHeader;
        OptionalLong retryAfter = OptionalLong.empty();
        int attempts;
        Throwable cause;

        Builder of(Kind kind, String code, Throwable cause) {
            this.kind = kind;
            this.code = code;
            this.cause = cause;
            return this;
        }

        ApiPayException build() {
            return new ApiPayException(this);
        }

        String message() {
            StringBuilder text = new StringBuilder("apipay: ")
                    .append(kind.name().toLowerCase(Locale.ROOT)).append(" error: ").append(printable(code));
            if (status != 0) {
                text.append(" (status ").append(status).append(')');
            }
            if (requestId != null) {
                text.append(", request ").append(printable(requestId));
            }
            if (idempotencyKey != null) {
                text.append(", idempotency key ").append(idempotencyKey);
            }
            if (attempts > 0) {
                text.append(", attempts ").append(attempts);
            }
            if (kind == Kind.ARGUMENT) {
                text.append(": ").append(cause.getMessage()); // written by the SDK
            }
            return text.toString();
        }

        /** Code and request id come from outside: what does not look like one is not printed. */
        private static String printable(String text) {
            return text.matches("[A-Za-z0-9_.-]{1,128}") ? text : "[not printable]";
        }
    }
}
