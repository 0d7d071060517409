package io.apipay;

import java.util.Map;

/** A request to send again what failed. */
public final class Recovery extends ApiObject {
    private final String id;
    private final String endpointId;
    private final long since;
    private final String status;
    private final boolean livemode;
    private final long created;

    Recovery(Map<String, Object> members) {
        super(members);
        id = requiredText("id");
        endpointId = text("endpoint_id");
        since = integer("since");
        status = text("status");
        livemode = bool("livemode");
        created = integer("created");
    }

    /**
     * The id.
     *
     * @return the id
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
     * From when on.
     *
     * @return Unix seconds
     */
    public long since() {
        return since;
    }

    /**
     * The state.
     *
     * @return the status
     */
    public String status() {
        return status;
    }

    /**
     * Says if it is of live mode.
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
}
