package io.apipay;

import java.util.List;

/** Parameters of creating a webhook endpoint. */
public final class WebhookEndpointCreateParams extends Params {
    /**
     * The required parameters.
     *
     * @param url where to send events
     * @param enabledEvents types of events, or {@code *}
     */
    public WebhookEndpointCreateParams(String url, List<String> enabledEvents) {
        set("url", url);
        set("enabled_events", enabledEvents);
    }

    /**
     * Sets your text.
     *
     * @param value the value
     * @return this
     */
    public WebhookEndpointCreateParams description(String value) {
        set("description", value);
        return this;
    }
}
