package io.apipay;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** An address that events are delivered to. */
public final class WebhookEndpoint extends ApiObject {
    private final String id;
    private final String url;
    private final List<String> enabledEvents;
    private final String description;
    private final String status;
    private final String disabledReason;
    private final boolean livemode;
    private final long created;
    private final long version;

    WebhookEndpoint(Map<String, Object> members) {
        super(wrapSecret(members));
        id = requiredText("id");
        url = text("url");
        enabledEvents = textList("enabled_events");
        description = text("description");
        status = text("status");
        disabledReason = text("disabled_reason");
        livemode = bool("livemode");
        created = integer("created");
        version = integer("version");
    }

    /**
     * The id.
     *
     * @return {@code we_...}
     */
    public String id() {
        return id;
    }

    /**
     * Where events go.
     *
     * @return the URL
     */
    public String url() {
        return url;
    }

    /**
     * The types of events.
     *
     * @return the types, or {@code *}
     */
    public List<String> enabledEvents() {
        return enabledEvents;
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
     * The state: {@code enabled} or {@code disabled}; expect others.
     *
     * @return the status
     */
    public String status() {
        return status;
    }

    /**
     * Why it is disabled.
     *
     * @return the reason, or null
     */
    public String disabledReason() {
        return disabledReason;
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
     * Rises by one with each event about the object: of two, the higher is later.
     *
     * @return the version
     */
    public long version() {
        return version;
    }

    /**
     * The signing secret: only in the answers of create and rotateSecret. It prints as {@code [redacted]}.
     *
     * @return the secret, or null
     */
    public Secret secret() {
        return members().get("secret") instanceof Secret secret ? secret : null;
    }

    /** Puts the secret in a wrapper that does not print it, also when the members are printed. */
    private static Map<String, Object> wrapSecret(Map<String, Object> members) {
        Object secret = members.get("secret");
        if (secret == null) {
            return members;
        }
        if (!(secret instanceof String text)) {
            throw new InvalidMemberException("secret");
        }
        Map<String, Object> wrapped = new LinkedHashMap<>(members);
        wrapped.put("secret", new Secret(text));
        return Collections.unmodifiableMap(wrapped);
    }
}
