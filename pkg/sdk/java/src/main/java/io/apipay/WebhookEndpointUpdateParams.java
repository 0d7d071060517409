package io.apipay;

import java.util.List;

/** What to change of a webhook endpoint; the rest stays as it is. */
public final class WebhookEndpointUpdateParams extends Params {
    /** No parameters yet. */
    public WebhookEndpointUpdateParams() {}

    /**
     * Sets where to send events.
     *
     * @param value the value
     * @return this
     */
    public WebhookEndpointUpdateParams url(String value) {
        set("url", value);
        return this;
    }

    /**
     * Sets the types of events.
     *
     * @param value the value
     * @return this
     */
    public WebhookEndpointUpdateParams enabledEvents(List<String> value) {
        set("enabled_events", value);
        return this;
    }

    /**
     * Sets your text.
     *
     * @param value the value
     * @return this
     */
    public WebhookEndpointUpdateParams description(String value) {
        set("description", value);
        return this;
    }

    /**
     * Sets {@code enabled} or {@code disabled}.
     *
     * @param value the value
     * @return this
     */
    public WebhookEndpointUpdateParams status(String value) {
        set("status", value);
        return this;
    }
}
