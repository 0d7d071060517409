<?php

declare(strict_types=1);

namespace ApiPay;

/** The calls about webhook endpoints and their deliveries. */
final class WebhookEndpoints extends Service
{
    /**
     * Makes an endpoint. Its secret is shown only here; keep it.
     *
     * @param array{url: string, enabled_events: list<string>, description?: string} $params
     */
    public function create(#[\SensitiveParameter] array $params, ?RequestOptions $options = null): WebhookEndpoint
    {
        return $this->one('POST', ['webhook-endpoints'], $params, WebhookEndpoint::class, $options);
    }

    /** Reads an endpoint. */
    public function get(string $id, ?RequestOptions $options = null): WebhookEndpoint
    {
        return $this->one('GET', ['webhook-endpoints', $id], null, WebhookEndpoint::class, $options);
    }

    /**
     * Reads one page.
     *
     * @param array{limit?: int, cursor?: string} $params
     * @return Page<WebhookEndpoint>
     */
    public function list(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Page
    {
        return $this->page(['webhook-endpoints'], $params, WebhookEndpoint::class, $options);
    }

    /**
     * Walks over every endpoint.
     *
     * @param array{limit?: int, cursor?: string} $params
     * @return \Generator<int, WebhookEndpoint>
     */
    public function all(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): \Generator
    {
        return $this->pages(['webhook-endpoints'], $params, WebhookEndpoint::class, $options);
    }

    /**
     * Changes what is given; the rest stays as it is.
     *
     * @param array{url?: string, enabled_events?: list<string>, description?: string, status?: string} $params
     */
    public function update(string $id, #[\SensitiveParameter] array $params, ?RequestOptions $options = null): WebhookEndpoint
    {
        return $this->one('PATCH', ['webhook-endpoints', $id], $params, WebhookEndpoint::class, $options);
    }

    /** Deletes an endpoint; its deliveries stay listed. */
    public function delete(string $id, ?RequestOptions $options = null): void
    {
        $this->core->call('DELETE', ['webhook-endpoints', $id], null, null, $options);
    }

    /**
     * Makes a new secret; it is shown only here. The old one signs beside it for a day, or for overlap_seconds; 0 revokes it now.
     *
     * @param array{overlap_seconds?: int} $params
     */
    public function rotateSecret(string $id, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): WebhookEndpoint
    {
        return $this->one('POST', ['webhook-endpoints', $id, 'rotate-secret'], $params === [] ? null : $params, WebhookEndpoint::class, $options);
    }

    /** Sends a ping event to the endpoint. */
    public function ping(string $id, ?RequestOptions $options = null): Event
    {
        return $this->one('POST', ['webhook-endpoints', $id, 'ping'], null, Event::class, $options);
    }

    /**
     * Reads one page of what was sent to the endpoint.
     *
     * @param array{limit?: int, cursor?: string, status?: string} $params
     * @return Page<WebhookDelivery>
     */
    public function deliveries(string $id, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Page
    {
        return $this->page(['webhook-endpoints', $id, 'deliveries'], $params, WebhookDelivery::class, $options);
    }

    /**
     * Walks over everything that was sent to the endpoint.
     *
     * @param array{limit?: int, cursor?: string, status?: string} $params
     * @return \Generator<int, WebhookDelivery>
     */
    public function allDeliveries(string $id, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): \Generator
    {
        return $this->pages(['webhook-endpoints', $id, 'deliveries'], $params, WebhookDelivery::class, $options);
    }

    /** Makes a failed delivery due now. */
    public function retryDelivery(string $id, string $delivery, ?RequestOptions $options = null): WebhookDelivery
    {
        return $this->one('POST', ['webhook-endpoints', $id, 'deliveries', $delivery, 'retry'], null, WebhookDelivery::class, $options);
    }

    /** Sends everything again that failed since a time in Unix seconds. */
    public function recover(string $id, int $since, ?RequestOptions $options = null): Recovery
    {
        return $this->one('POST', ['webhook-endpoints', $id, 'recover'], ['since' => $since], Recovery::class, $options);
    }
}
