package io.apipay;

import java.util.Map;

/** One POST of a delivery. */
public final class DeliveryAttempt extends ApiObject {
    private final long number;
    private final String trigger;
    private final String outcome;
    private final long startedAt;
    private final Long latencyMs;
    private final Long statusCode;
    private final String errorClass;
    private final String responseExcerpt;

    DeliveryAttempt(Map<String, Object> members) {
        super(members);
        number = integer("number");
        trigger = text("trigger");
        outcome = text("outcome");
        startedAt = integer("started_at");
        latencyMs = integerOrNull("latency_ms");
        statusCode = integerOrNull("status_code");
        errorClass = text("error_class");
        responseExcerpt = text("response_excerpt");
    }

    /**
     * Its number.
     *
     * @return from 1
     */
    public long number() {
        return number;
    }

    /**
     * Its reason: {@code scheduled}, {@code manual} or {@code recovery}.
     *
     * @return the trigger
     */
    public String trigger() {
        return trigger;
    }

    /**
     * Its end: {@code succeeded}, {@code failed}, {@code superseded} or {@code lost}.
     *
     * @return the outcome
     */
    public String outcome() {
        return outcome;
    }

    /**
     * When it began.
     *
     * @return Unix seconds
     */
    public long startedAt() {
        return startedAt;
    }

    /**
     * How long it took.
     *
     * @return milliseconds, or null
     */
    public Long latencyMs() {
        return latencyMs;
    }

    /**
     * What the endpoint answered.
     *
     * @return the HTTP status, or null
     */
    public Long statusCode() {
        return statusCode;
    }

    /**
     * What went wrong.
     *
     * @return the class, or null
     */
    public String errorClass() {
        return errorClass;
    }

    /**
     * The beginning of the answer.
     *
     * @return the text, or null
     */
    public String responseExcerpt() {
        return responseExcerpt;
    }
}
