package io.apipay;

import java.util.List;
import java.util.Map;

/** One event on its way to one endpoint. */
public final class WebhookDelivery extends ApiObject {
    private final String id;
    private final String endpointId;
    private final String endpointUrl;
    private final String eventId;
    private final String eventType;
    private final String status;
    private final long attemptCount;
    private final Long nextAttemptAt;
    private final String held;
    private final Long deliveredAt;
    private final Long failedAt;
    private final String failureReason;
    private final long createdAt;
    private final List<DeliveryAttempt> attempts;

    WebhookDelivery(Map<String, Object> members) {
        super(members);
        id = requiredText("id");
        endpointId = text("endpoint_id");
        endpointUrl = text("endpoint_url");
        eventId = text("event_id");
        eventType = text("event_type");
        status = text("status");
        attemptCount = integer("attempt_count");
        nextAttemptAt = integerOrNull("next_attempt_at");
        held = text("held");
        deliveredAt = integerOrNull("delivered_at");
        failedAt = integerOrNull("failed_at");
        failureReason = text("failure_reason");
        createdAt = integer("created_at");
        attempts = objects("attempts", DeliveryAttempt::new);
    }

    /**
     * The id.
     *
     * @return {@code whd_...}
     */
    public String id() {
        return id;
    }

    /**
     * The endpoint.
     *
     * @return its id
     */
    public String endpointId() {
        return endpointId;
    }

    /**
     * Where it goes.
     *
     * @return the URL
     */
    public String endpointUrl() {
        return endpointUrl;
    }

    /**
     * The event.
     *
     * @return its id
     */
    public String eventId() {
        return eventId;
    }

    /**
     * The type of the event.
     *
     * @return the type
     */
    public String eventType() {
        return eventType;
    }

    /**
     * The state: {@code PENDING}, {@code RETRYING}, {@code DELIVERED} or {@code FAILED}.
     *
     * @return the status
     */
    public String status() {
        return status;
    }

    /**
     * How often it was tried.
     *
     * @return the number
     */
    public long attemptCount() {
        return attemptCount;
    }

    /**
     * When it is tried next.
     *
     * @return Unix seconds, or null
     */
    public Long nextAttemptAt() {
        return nextAttemptAt;
    }

    /**
     * Why it waits.
     *
     * @return the reason, or null
     */
    public String held() {
        return held;
    }

    /**
     * When it was delivered.
     *
     * @return Unix seconds, or null
     */
    public Long deliveredAt() {
        return deliveredAt;
    }

    /**
     * When it failed for good.
     *
     * @return Unix seconds, or null
     */
    public Long failedAt() {
        return failedAt;
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
     * When it was made.
     *
     * @return Unix seconds
     */
    public long createdAt() {
        return createdAt;
    }

    /**
     * Its POSTs.
     *
     * @return the attempts
     */
    public List<DeliveryAttempt> attempts() {
        return attempts;
    }
}
