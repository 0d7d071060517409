package io.apipay;

import io.apipay.testing.WebhookSigner;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.DoubleSupplier;

/** A step's call, made with the synchronous or with the asynchronous client. */
final class Methods {
    private final ApiPay client;
    private final Clock clock;
    private final DoubleSupplier random;
    private final Map<String, Object> args;
    private final List<Object> ids;
    private final RequestOptions options;

    /** ids gets what an iteration saw. */
    Methods(ApiPay client, Clock clock, DoubleSupplier random, Map<String, Object> args, List<Object> ids, RequestOptions options) {
        this.client = client;
        this.clock = clock;
        this.random = random;
        this.args = args;
        this.ids = ids;
        this.options = options;
    }

    Object sync(String method) {
        PaymentIntents intents = client.paymentIntents();
        WebhookEndpoints endpoints = client.webhookEndpoints();
        switch (method) {
            case "payment_intents.create": return intents.create(create(), options);
            case "payment_intents.confirm": return intents.confirm(text("id"), confirm(), options);
            case "payment_intents.cancel": return intents.cancel(text("id"), options);
            case "payment_intents.refund": return intents.refund(text("id"), refund(), options);
            case "payment_intents.get": return intents.get(text("id"), options);
            case "payment_intents.list": return intents.list(intentFilter(), options);
            case "payment_intents.all": return collect(intents.all(intentFilter(), options));
            case "refunds.get": return client.refunds().get(text("id"), options);
            case "refunds.list": return client.refunds().list(text("payment_intent"), paging(), options);
            case "refunds.all": return collect(client.refunds().all(text("payment_intent"), paging(), options));
            case "webhook_endpoints.create": return endpoints.create(endpoint(), options);
            case "webhook_endpoints.get": return endpoints.get(text("id"), options);
            case "webhook_endpoints.list": return endpoints.list(paging(), options);
            case "webhook_endpoints.all": return collect(endpoints.all(paging(), options));
            case "webhook_endpoints.update": return endpoints.update(text("id"), update(), options);
            case "webhook_endpoints.delete": endpoints.delete(text("id"), options); return null;
            case "webhook_endpoints.rotate_secret": return endpoints.rotateSecret(text("id"), rotation(), options);
            case "webhook_endpoints.ping": return endpoints.ping(text("id"), options);
            case "webhook_endpoints.deliveries": return endpoints.deliveries(text("id"), deliveries(), options);
            case "webhook_endpoints.all_deliveries": return collect(endpoints.allDeliveries(text("id"), deliveries(), options));
            case "webhook_endpoints.retry_delivery": return endpoints.retryDelivery(text("id"), text("delivery"), options);
            case "webhook_endpoints.recover": return endpoints.recover(text("id"), recovery(), options);
            case "events.get": return client.events().get(text("id"), options);
            case "events.list": return client.events().list(events(), options);
            case "events.all": return collect(client.events().all(events(), options));
            default: return local(method);
        }
    }

    CompletableFuture<?> async(String method) {
        PaymentIntentsAsync intents = client.async().paymentIntents();
        WebhookEndpointsAsync endpoints = client.async().webhookEndpoints();
        RefundsAsync refunds = client.async().refunds();
        EventsAsync events = client.async().events();
        switch (method) {
            case "payment_intents.create": return intents.create(create(), options);
            case "payment_intents.confirm": return intents.confirm(text("id"), confirm(), options);
            case "payment_intents.cancel": return intents.cancel(text("id"), options);
            case "payment_intents.refund": return intents.refund(text("id"), refund(), options);
            case "payment_intents.get": return intents.get(text("id"), options);
            case "payment_intents.list": return intents.list(intentFilter(), options);
            case "payment_intents.all": return collected(intents.all(intentFilter(), this::took, options));
            case "refunds.get": return refunds.get(text("id"), options);
            case "refunds.list": return refunds.list(text("payment_intent"), paging(), options);
            case "refunds.all": return collected(refunds.all(text("payment_intent"), paging(), this::took, options));
            case "webhook_endpoints.create": return endpoints.create(endpoint(), options);
            case "webhook_endpoints.get": return endpoints.get(text("id"), options);
            case "webhook_endpoints.list": return endpoints.list(paging(), options);
            case "webhook_endpoints.all": return collected(endpoints.all(paging(), this::took, options));
            case "webhook_endpoints.update": return endpoints.update(text("id"), update(), options);
            case "webhook_endpoints.delete": return endpoints.delete(text("id"), options);
            case "webhook_endpoints.rotate_secret": return endpoints.rotateSecret(text("id"), rotation(), options);
            case "webhook_endpoints.ping": return endpoints.ping(text("id"), options);
            case "webhook_endpoints.deliveries": return endpoints.deliveries(text("id"), deliveries(), options);
            case "webhook_endpoints.all_deliveries":
                return collected(endpoints.allDeliveries(text("id"), deliveries(), this::took, options));
            case "webhook_endpoints.retry_delivery": return endpoints.retryDelivery(text("id"), text("delivery"), options);
            case "webhook_endpoints.recover": return endpoints.recover(text("id"), recovery(), options);
            case "events.get": return events.get(text("id"), options);
            case "events.list": return events.list(events(), options);
            case "events.all": return collected(events.all(events(), this::took, options));
            default: return CompletableFuture.completedFuture(local(method));
        }
    }

    /** What sends nothing. */
    private Object local(String method) {
        switch (method) {
            case "client.print":
                return null;
            case "backoff.sample": {
                List<Object> waits = new ArrayList<>();
                for (long i = 0; i < number("count"); i++) {
                    waits.add(RetryPolicy.backoff((int) number("n"), random.getAsDouble()).toNanos() / 1e6);
                }
                return waits;
            }
            case "webhooks.sign":
                return Map.of("header", WebhookSigner.sign(payload(), Instant.ofEpochSecond(number("timestamp")), secrets()));
            case "webhooks.verify":
                verifier().verify(payload(), text("header"));
                return Map.of("verified", true);
            case "webhooks.construct_event":
                return verifier().constructEvent(payload(), text("header"));
            default:
                throw new IllegalArgumentException("unknown method " + method);
        }
    }

    private WebhookVerifier verifier() {
        WebhookVerifier verifier = WebhookVerifier.of(secrets()).clock(clock);
        return args.containsKey("tolerance_seconds") ? verifier.tolerance(Duration.ofSeconds(number("tolerance_seconds"))) : verifier;
    }

    private byte[] payload() {
        return Base64.getDecoder().decode(text("payload_base64"));
    }

    private String[] secrets() {
        return args.get("secrets") instanceof List<?> list ? list.toArray(String[]::new) : new String[0];
    }

    private boolean took(ApiObject object) {
        ids.add(object.members().get("id"));
        return ids.size() != Runner.number(args, "take", 0);
    }

    private <T extends ApiObject> Object collect(Pages<T> pages) {
        for (T object : pages) {
            if (!took(object)) {
                break;
            }
        }
        return Map.of("ids", ids);
    }

    private CompletableFuture<?> collected(CompletableFuture<Void> walk) {
        return walk.thenApply(nothing -> Map.of("ids", ids));
    }

    private String text(String name) {
        return (String) args.get(name);
    }

    private long number(String name) {
        return Runner.number(args, name, 0);
    }

    /** Sets what the step gives; the setters of params do no more than this. */
    private <P extends Params> P given(P params, String... names) {
        for (String name : names) {
            if (args.containsKey(name)) {
                params.set(name, args.get(name));
            }
        }
        return params;
    }

    @SuppressWarnings("unchecked") // vectors have texts there
    private PaymentIntentCreateParams create() {
        PaymentIntentCreateParams params = new PaymentIntentCreateParams(number("amount"), text("currency"))
                .paymentMethod(text("payment_method")).description(text("description"))
                .merchantReference(text("merchant_reference")).metadata((Map<String, String>) args.get("metadata"));
        return args.containsKey("confirm") ? params.confirm((Boolean) args.get("confirm")) : params;
    }

    private PaymentIntentConfirmParams confirm() {
        return new PaymentIntentConfirmParams().paymentMethod(text("payment_method"));
    }

    private RefundParams refund() {
        return given(new RefundParams(), "amount", "reason", "metadata");
    }

    private PageParams paging() {
        return given(new PageParams(), "limit", "cursor");
    }

    private PaymentIntentListParams intentFilter() {
        PaymentIntentListParams params = given(new PaymentIntentListParams(), "limit", "cursor", "status", "currency", "merchant_reference");
        if (args.containsKey("created_gte")) {
            params.createdGte(number("created_gte"));
        }
        return args.containsKey("created_lt") ? params.createdLt(number("created_lt")) : params;
    }

    @SuppressWarnings("unchecked") // vectors have texts there
    private WebhookEndpointCreateParams endpoint() {
        return new WebhookEndpointCreateParams(text("url"), (List<String>) args.get("enabled_events")).description(text("description"));
    }

    private WebhookEndpointUpdateParams update() {
        return given(new WebhookEndpointUpdateParams(), "url", "enabled_events", "description", "status");
    }

    private RotateSecretParams rotation() {
        return given(new RotateSecretParams(), "overlap_seconds");
    }

    private DeliveryListParams deliveries() {
        return given(new DeliveryListParams(), "limit", "cursor", "status");
    }

    private RecoverParams recovery() {
        return new RecoverParams(number("since"));
    }

    private EventListParams events() {
        return given(new EventListParams(), "limit", "cursor", "type");
    }
}
