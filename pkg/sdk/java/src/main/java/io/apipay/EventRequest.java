package io.apipay;

import java.util.Map;

/** The call that caused an event. */
public final class EventRequest extends ApiObject {
    private final String id;
    private final String idempotencyKey;

    EventRequest(Map<String, Object> members) {
        super(members);
        id = text("id");
        idempotencyKey = text("idempotency_key");
    }

    /**
     * The request id.
     *
     * @return the id, or null
     */
    public String id() {
        return id;
    }

    /**
     * The key.
     *
     * @return the key, or null
     */
    public String idempotencyKey() {
        return idempotencyKey;
    }
}
