package io.apipay;

import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;

/** The calls about webhook endpoints and their deliveries; each begins at once and gives a future. */
public final class WebhookEndpointsAsync {
    private final Core core;

    WebhookEndpointsAsync(Core core) {
        this.core = core;
    }

    /**
     * Makes an endpoint. Its secret is shown only here; keep it.
     *
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> create(WebhookEndpointCreateParams params) {
        return create(params, RequestOptions.NONE);
    }

    /**
     * Makes an endpoint. Its secret is shown only here; keep it.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> create(WebhookEndpointCreateParams params, RequestOptions options) {
        return core.start("POST", Core.parts("webhook-endpoints"), params, WebhookEndpoint::new, options);
    }

    /**
     * Reads an endpoint.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads an endpoint.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> get(String id, RequestOptions options) {
        return core.start("GET", Core.parts("webhook-endpoints", id), null, WebhookEndpoint::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<WebhookEndpoint>> list(PageParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<WebhookEndpoint>> list(PageParams params, RequestOptions options) {
        return core.start("GET", Core.parts("webhook-endpoints"), params,
                members -> new Page<>(members, WebhookEndpoint::new), options);
    }

    /**
     * Walks over every endpoint.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(PageParams params, Predicate<? super WebhookEndpoint> each) {
        return all(params, each, RequestOptions.NONE);
    }

    /**
     * Walks over every endpoint.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @param options options of this call
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(PageParams params, Predicate<? super WebhookEndpoint> each, RequestOptions options) {
        return Pages.forEach(core, Core.parts("webhook-endpoints"), params, WebhookEndpoint::new, options, each);
    }

    /**
     * Changes what params has.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> update(String id, WebhookEndpointUpdateParams params) {
        return update(id, params, RequestOptions.NONE);
    }

    /**
     * Changes what params has.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> update(String id, WebhookEndpointUpdateParams params, RequestOptions options) {
        return core.start("PATCH", Core.parts("webhook-endpoints", id), params, WebhookEndpoint::new, options);
    }

    /**
     * Deletes an endpoint; its deliveries stay listed.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<Void> delete(String id) {
        return delete(id, RequestOptions.NONE);
    }

    /**
     * Deletes an endpoint; its deliveries stay listed.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Void> delete(String id, RequestOptions options) {
        return core.start("DELETE", Core.parts("webhook-endpoints", id), null, Core.<Void>noReader(), options);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> rotateSecret(String id, RotateSecretParams params) {
        return rotateSecret(id, params, RequestOptions.NONE);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> rotateSecret(String id) {
        return rotateSecret(id, new RotateSecretParams(), RequestOptions.NONE);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookEndpoint> rotateSecret(String id, RotateSecretParams params, RequestOptions options) {
        return core.start("POST", Core.parts("webhook-endpoints", id, "rotate-secret"), Params.orNone(params),
                WebhookEndpoint::new, options);
    }

    /**
     * Sends a ping event to the endpoint.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<Event> ping(String id) {
        return ping(id, RequestOptions.NONE);
    }

    /**
     * Sends a ping event to the endpoint.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Event> ping(String id, RequestOptions options) {
        return core.start("POST", Core.parts("webhook-endpoints", id, "ping"), null, Event::new, options);
    }

    /**
     * Reads one page of what was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<WebhookDelivery>> deliveries(String id, DeliveryListParams params) {
        return deliveries(id, params, RequestOptions.NONE);
    }

    /**
     * Reads one page of what was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<WebhookDelivery>> deliveries(String id, DeliveryListParams params, RequestOptions options) {
        return core.start("GET", Core.parts("webhook-endpoints", id, "deliveries"), params,
                members -> new Page<>(members, WebhookDelivery::new), options);
    }

    /**
     * Walks over everything that was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @return completes after the last object
     */
    public CompletableFuture<Void> allDeliveries(String id, DeliveryListParams params, Predicate<? super WebhookDelivery> each) {
        return allDeliveries(id, params, each, RequestOptions.NONE);
    }

    /**
     * Walks over everything that was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @param options options of this call
     * @return completes after the last object
     */
    public CompletableFuture<Void> allDeliveries(String id, DeliveryListParams params, Predicate<? super WebhookDelivery> each, RequestOptions options) {
        return Pages.forEach(core, Core.parts("webhook-endpoints", id, "deliveries"), params, WebhookDelivery::new, options, each);
    }

    /**
     * Makes a failed delivery due now.
     *
     * @param id the object's id
     * @param delivery the delivery's id
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookDelivery> retryDelivery(String id, String delivery) {
        return retryDelivery(id, delivery, RequestOptions.NONE);
    }

    /**
     * Makes a failed delivery due now.
     *
     * @param id the object's id
     * @param delivery the delivery's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<WebhookDelivery> retryDelivery(String id, String delivery, RequestOptions options) {
        return core.start("POST", Core.parts("webhook-endpoints", id, "deliveries", delivery, "retry"), null,
                WebhookDelivery::new, options);
    }

    /**
     * Sends everything again that failed since a time.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Recovery> recover(String id, RecoverParams params) {
        return recover(id, params, RequestOptions.NONE);
    }

    /**
     * Sends everything again that failed since a time.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Recovery> recover(String id, RecoverParams params, RequestOptions options) {
        return core.start("POST", Core.parts("webhook-endpoints", id, "recover"), params, Recovery::new, options);
    }
}
