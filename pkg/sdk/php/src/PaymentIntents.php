<?php

declare(strict_types=1);

namespace ApiPay;

/** The calls about payment intents. */
final class PaymentIntents extends Service
{
    /**
     * Makes a payment intent, and confirms it at once if asked to. The amount is in the minor unit. Never sent twice.
     *
     * @param array{amount: int, currency: string, payment_method?: string, confirm?: bool, description?: string, metadata?: array<string, string>, merchant_reference?: string} $params
     */
    public function create(#[\SensitiveParameter] array $params, ?RequestOptions $options = null): PaymentIntent
    {
        return $this->one('POST', ['payment-intents'], $params, PaymentIntent::class, $options);
    }

    /**
     * Charges the payment method, or the intent's own; the status is processing while the outcome is unknown. Never sent twice.
     *
     * @param array{payment_method?: string} $params
     */
    public function confirm(string $id, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): PaymentIntent
    {
        return $this->one('POST', ['payment-intents', $id, 'confirm'], $params === [] ? null : $params, PaymentIntent::class, $options);
    }

    /** Cancels an intent that has not succeeded. Never sent twice. */
    public function cancel(string $id, ?RequestOptions $options = null): PaymentIntent
    {
        return $this->one('POST', ['payment-intents', $id, 'cancel'], null, PaymentIntent::class, $options);
    }

    /**
     * Gives back the amount, or all that is left. Never sent twice.
     *
     * @param array{amount?: int, reason?: string, metadata?: array<string, string>} $params
     */
    public function refund(string $id, #[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Refund
    {
        return $this->one('POST', ['payment-intents', $id, 'refunds'], $params, Refund::class, $options);
    }

    /** Reads a payment intent. */
    public function get(string $id, ?RequestOptions $options = null): PaymentIntent
    {
        return $this->one('GET', ['payment-intents', $id], null, PaymentIntent::class, $options);
    }

    /**
     * Reads one page. Times are Unix seconds: from, and before.
     *
     * @param array{limit?: int, cursor?: string, status?: string, currency?: string, merchant_reference?: string, created_gte?: int, created_lt?: int} $params
     * @return Page<PaymentIntent>
     */
    public function list(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Page
    {
        return $this->page(['payment-intents'], self::query($params), PaymentIntent::class, $options);
    }

    /**
     * Walks over every page.
     *
     * @param array{limit?: int, cursor?: string, status?: string, currency?: string, merchant_reference?: string, created_gte?: int, created_lt?: int} $params
     * @return \Generator<int, PaymentIntent>
     */
    public function all(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): \Generator
    {
        return $this->pages(['payment-intents'], self::query($params), PaymentIntent::class, $options);
    }

    /** In the query the two times are members of "created". */
    private static function query(array $params): array
    {
        $query = [];
        foreach ($params as $name => $value) {
            $query[['created_gte' => 'created[gte]', 'created_lt' => 'created[lt]'][$name] ?? $name] = $value;
        }
        return $query;
    }
}
