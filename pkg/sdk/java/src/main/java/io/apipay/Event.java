package io.apipay;

import java.util.Map;
import java.util.function.Function;

/** A fact that merchants are told. Its id is the same in every delivery: handle each id once. */
public final class Event extends ApiObject {
    private final String id;
    private final String type;
    private final long created;
    private final boolean livemode;
    private final String apiVersion;
    private final EventRequest request;
    private final Map<String, Object> object;

    Event(Map<String, Object> members) {
        super(members);
        id = requiredText("id");
        type = text("type");
        created = integer("created");
        livemode = bool("livemode");
        apiVersion = text("api_version");
        request = objectOrNull("request", EventRequest::new);
        Map<String, Object> data = objectOrNull("data");
        object = data == null ? null : Json.object(data.get("object"));
    }

    /**
     * The id.
     *
     * @return {@code evt_...}
     */
    public String id() {
        return id;
    }

    /**
     * What happened, e.g. {@code payment_intent.succeeded}; expect types that you do not know.
     *
     * @return the type
     */
    public String type() {
        return type;
    }

    /**
     * When it happened.
     *
     * @return Unix seconds
     */
    public long created() {
        return created;
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
     * The version of the object's form.
     *
     * @return the version
     */
    public String apiVersion() {
        return apiVersion;
    }

    /**
     * What caused it.
     *
     * @return the call, or null
     */
    public EventRequest request() {
        return request;
    }

    /**
     * The object as it was then.
     *
     * @return its members, or null
     */
    public Map<String, Object> object() {
        return object;
    }

    /**
     * Reads the object of a payment_intent event.
     *
     * @return the payment intent
     */
    public PaymentIntent paymentIntent() {
        return objectAs(PaymentIntent::new);
    }

    /**
     * Reads the object of a refund event.
     *
     * @return the refund
     */
    public Refund refund() {
        return objectAs(Refund::new);
    }

    /**
     * Reads the object of a webhook_endpoint or ping event.
     *
     * @return the endpoint
     */
    public WebhookEndpoint webhookEndpoint() {
        return objectAs(WebhookEndpoint::new);
    }

    private <T> T objectAs(Function<Map<String, Object>, T> reader) {
        try {
            return reader.apply(object == null ? Map.of() : object);
        } catch (InvalidMemberException e) {
            throw new ApiPayException.Builder()
                    .of(ApiPayException.Kind.DECODE, ErrorCode.INVALID_RESPONSE, e)
                    .build();
        }
    }
}
