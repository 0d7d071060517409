package io.apipay;

/** The calls about webhook endpoints and their deliveries. */
public final class WebhookEndpoints {
    private final Core core;

    WebhookEndpoints(Core core) {
        this.core = core;
    }

    /**
     * Makes an endpoint. Its secret is shown only here; keep it.
     *
     * @param params the parameters
     * @return the answer
     */
    public WebhookEndpoint create(WebhookEndpointCreateParams params) {
        return create(params, RequestOptions.NONE);
    }

    /**
     * Makes an endpoint. Its secret is shown only here; keep it.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public WebhookEndpoint create(WebhookEndpointCreateParams params, RequestOptions options) {
        return core.call("POST", Core.parts("webhook-endpoints"), params, WebhookEndpoint::new, options);
    }

    /**
     * Reads an endpoint.
     *
     * @param id the object's id
     * @return the answer
     */
    public WebhookEndpoint get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads an endpoint.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public WebhookEndpoint get(String id, RequestOptions options) {
        return core.call("GET", Core.parts("webhook-endpoints", id), null, WebhookEndpoint::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer
     */
    public Page<WebhookEndpoint> list(PageParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Page<WebhookEndpoint> list(PageParams params, RequestOptions options) {
        return core.call("GET", Core.parts("webhook-endpoints"), params,
                members -> new Page<>(members, WebhookEndpoint::new), options);
    }

    /**
     * Walks over every endpoint.
     *
     * @param params the parameters
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<WebhookEndpoint> all(PageParams params) {
        return all(params, RequestOptions.NONE);
    }

    /**
     * Walks over every endpoint.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<WebhookEndpoint> all(PageParams params, RequestOptions options) {
        return new Pages<>(core, Core.parts("webhook-endpoints"), params, WebhookEndpoint::new, options);
    }

    /**
     * Changes what params has.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public WebhookEndpoint update(String id, WebhookEndpointUpdateParams params) {
        return update(id, params, RequestOptions.NONE);
    }

    /**
     * Changes what params has.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public WebhookEndpoint update(String id, WebhookEndpointUpdateParams params, RequestOptions options) {
        return core.call("PATCH", Core.parts("webhook-endpoints", id), params, WebhookEndpoint::new, options);
    }

    /**
     * Deletes an endpoint; its deliveries stay listed.
     *
     * @param id the object's id
     */
    public void delete(String id) {
        delete(id, RequestOptions.NONE);
    }

    /**
     * Deletes an endpoint; its deliveries stay listed.
     *
     * @param id the object's id
     * @param options options of this call
     */
    public void delete(String id, RequestOptions options) {
        core.call("DELETE", Core.parts("webhook-endpoints", id), null, null, options);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public WebhookEndpoint rotateSecret(String id, RotateSecretParams params) {
        return rotateSecret(id, params, RequestOptions.NONE);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @return the answer
     */
    public WebhookEndpoint rotateSecret(String id) {
        return rotateSecret(id, new RotateSecretParams(), RequestOptions.NONE);
    }

    /**
     * Makes a new secret; it is shown only here.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public WebhookEndpoint rotateSecret(String id, RotateSecretParams params, RequestOptions options) {
        return core.call("POST", Core.parts("webhook-endpoints", id, "rotate-secret"), Params.orNone(params),
                WebhookEndpoint::new, options);
    }

    /**
     * Sends a ping event to the endpoint.
     *
     * @param id the object's id
     * @return the answer
     */
    public Event ping(String id) {
        return ping(id, RequestOptions.NONE);
    }

    /**
     * Sends a ping event to the endpoint.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public Event ping(String id, RequestOptions options) {
        return core.call("POST", Core.parts("webhook-endpoints", id, "ping"), null, Event::new, options);
    }

    /**
     * Reads one page of what was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public Page<WebhookDelivery> deliveries(String id, DeliveryListParams params) {
        return deliveries(id, params, RequestOptions.NONE);
    }

    /**
     * Reads one page of what was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Page<WebhookDelivery> deliveries(String id, DeliveryListParams params, RequestOptions options) {
        return core.call("GET", Core.parts("webhook-endpoints", id, "deliveries"), params,
                members -> new Page<>(members, WebhookDelivery::new), options);
    }

    /**
     * Walks over everything that was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<WebhookDelivery> allDeliveries(String id, DeliveryListParams params) {
        return allDeliveries(id, params, RequestOptions.NONE);
    }

    /**
     * Walks over everything that was sent to the endpoint.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<WebhookDelivery> allDeliveries(String id, DeliveryListParams params, RequestOptions options) {
        return new Pages<>(core, Core.parts("webhook-endpoints", id, "deliveries"), params, WebhookDelivery::new, options);
    }

    /**
     * Makes a failed delivery due now.
     *
     * @param id the object's id
     * @param delivery the delivery's id
     * @return the answer
     */
    public WebhookDelivery retryDelivery(String id, String delivery) {
        return retryDelivery(id, delivery, RequestOptions.NONE);
    }

    /**
     * Makes a failed delivery due now.
     *
     * @param id the object's id
     * @param delivery the delivery's id
     * @param options options of this call
     * @return the answer
     */
    public WebhookDelivery retryDelivery(String id, String delivery, RequestOptions options) {
        return core.call("POST", Core.parts("webhook-endpoints", id, "deliveries", delivery, "retry"), null,
                WebhookDelivery::new, options);
    }

    /**
     * Sends everything again that failed since a time.
     *
     * @param id the object's id
     * @param params the parameters
     * @return the answer
     */
    public Recovery recover(String id, RecoverParams params) {
        return recover(id, params, RequestOptions.NONE);
    }

    /**
     * Sends everything again that failed since a time.
     *
     * @param id the object's id
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Recovery recover(String id, RecoverParams params, RequestOptions options) {
        return core.call("POST", Core.parts("webhook-endpoints", id, "recover"), params, Recovery::new, options);
    }
}
