<?php

declare(strict_types=1);

namespace ApiPay;

/** The calls about refunds; PaymentIntents::refund makes one. */
final class Refunds extends Service
{
    /** Reads a refund. */
    public function get(string $id, ?RequestOptions $options = null): Refund
    {
        return $this->one('GET', ['refunds', $id], null, Refund::class, $options);
    }

    /**
     * Reads one page of a payment intent's refunds.
     *
     * @param array{limit?: int, cursor?: string} $params
     * @return Page<Refund>
     */
    public function list(string $paymentIntent, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Page
    {
        return $this->page(['payment-intents', $paymentIntent, 'refunds'], $params, Refund::class, $options);
    }

    /**
     * Walks over every refund of a payment intent.
     *
     * @param array{limit?: int, cursor?: string} $params
     * @return \Generator<int, Refund>
     */
    public function all(string $paymentIntent, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): \Generator
    {
        return $this->pages(['payment-intents', $paymentIntent, 'refunds'], $params, Refund::class, $options);
    }
}
