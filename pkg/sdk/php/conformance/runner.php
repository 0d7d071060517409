<?php

declare(strict_types=1);

/*
 * The PHP SDK's runner of the vectors in pkg/sdk/conformance: one job per line on stdin, one answer per line on stdout. The
 * protocol is described there.
 */

use ApiPay\ApiObject;
use ApiPay\ApiPayException;
use ApiPay\Client;
use ApiPay\RequestOptions;
use ApiPay\RetryPolicy;
use ApiPay\SignatureVerificationException;
use ApiPay\Testing\WebhookSigner;
use ApiPay\WebhookVerifier;

require __DIR__ . '/../autoload.php';

set_error_handler(static function (int $level, string $message, string $file, int $line): never {
    throw new ErrorException($message, 0, $level, $file, $line);
});

/** One job's client and what is recorded of it. */
final class Runner
{
    private readonly Client $client;
    private readonly Closure $clock;
    private readonly Closure $random;
    /** @var list<float> */
    private array $sleeps = [];
    /** @var list<string|null> of the errors of earlier steps */
    private array $keys = [];
    /** @var list<string> what an iteration saw */
    private array $ids = [];

    public function __construct(stdClass $client)
    {
        $ms = $client->clock_ms ?? 0;
        $now = DateTimeImmutable::createFromFormat('U.u', sprintf('%d.%06d', intdiv($ms, 1000), $ms % 1000 * 1000));
        $this->clock = static fn (): DateTimeImmutable => $now;
        $numbers = $client->random ?? [];
        $next = 0;
        $this->random = $numbers === [] ? RetryPolicy::random(...) : static function () use ($numbers, &$next): float {
            return (float) $numbers[$next++ % count($numbers)];
        };
        $real = ($client->sleeper ?? '') === 'real';
        $options = [
            'apiKey' => $client->api_key,
            'baseUrl' => $client->base_url,
            'clock' => $this->clock,
            'random' => $this->random,
            'sleeper' => function (float $seconds) use ($real): void {
                $this->sleeps[] = round($seconds * 1000, 6);
                if ($real) {
                    usleep((int) ceil($seconds * 1e6));
                }
            },
        ];
        foreach (['timeout_ms' => 'timeout', 'connect_timeout_ms' => 'connectTimeout'] as $given => $name) {
            if (isset($client->{$given})) {
                $options[$name] = $client->{$given} / 1000;
            }
        }
        if (isset($client->max_retries)) {
            $options['maxRetries'] = $client->max_retries;
        }
        $this->client = new Client(...$options);
    }

    public function step(stdClass $step): array
    {
        $this->sleeps = $this->ids = [];
        $value = $failure = null;
        $started = hrtime(true);
        try {
            $value = $this->call($step->method, (array) ($step->args ?? []), $this->options($step->options ?? null));
        } catch (ApiPayException|SignatureVerificationException $e) {
            $failure = $e;
        }
        $elapsed = (hrtime(true) - $started) / 1e6;
        $result = ['sleeps_ms' => $this->sleeps, 'elapsed_ms' => $elapsed];
        if ($failure === null) {
            $result['ok'] = $value;
        } else {
            $result['error'] = self::error($failure);
            $result['ids'] = $this->ids;
        }
        $this->keys[] = $failure instanceof ApiPayException ? $failure->idempotencyKey : null;
        if ($step->print ?? false) {
            $result['printed'] = self::printed($failure ?? $value ?? $this->client);
        }
        return $result;
    }

    private function options(?stdClass $given): RequestOptions
    {
        $key = $given?->idempotency_key ?? null;
        if (isset($given->idempotency_key_from_step)) {
            $key = $this->keys[$given->idempotency_key_from_step];
        }
        return new RequestOptions(
            $key,
            isset($given->timeout_ms) ? $given->timeout_ms / 1000 : null,
            isset($given->deadline_ms) ? $given->deadline_ms / 1000 : null,
            (array) ($given?->headers ?? []),
        );
    }

    private function call(string $method, array $args, RequestOptions $options): mixed
    {
        $c = $this->client;
        $id = $args['id'] ?? '';
        $params = $args;
        unset($params['id'], $params['take'], $params['delivery']);
        if (isset($params['metadata'])) {
            $params['metadata'] = (array) $params['metadata'];
        }
        $payment = $args['payment_intent'] ?? '';
        $paging = array_intersect_key($args, ['limit' => 0, 'cursor' => 0]);
        return match ($method) {
            'payment_intents.create' => $c->paymentIntents->create($params, $options),
            'payment_intents.confirm' => $c->paymentIntents->confirm($id, $params, $options),
            'payment_intents.cancel' => $c->paymentIntents->cancel($id, $options),
            'payment_intents.refund' => $c->paymentIntents->refund($id, $params, $options),
            'payment_intents.get' => $c->paymentIntents->get($id, $options),
            'payment_intents.list' => $c->paymentIntents->list($params, $options),
            'payment_intents.all' => $this->collect($c->paymentIntents->all($params, $options), $args),
            'refunds.get' => $c->refunds->get($id, $options),
            'refunds.list' => $c->refunds->list($payment, $paging, $options),
            'refunds.all' => $this->collect($c->refunds->all($payment, $paging, $options), $args),
            'webhook_endpoints.create' => $c->webhookEndpoints->create($params, $options),
            'webhook_endpoints.get' => $c->webhookEndpoints->get($id, $options),
            'webhook_endpoints.list' => $c->webhookEndpoints->list($params, $options),
            'webhook_endpoints.all' => $this->collect($c->webhookEndpoints->all($params, $options), $args),
            'webhook_endpoints.update' => $c->webhookEndpoints->update($id, $params, $options),
            'webhook_endpoints.delete' => $c->webhookEndpoints->delete($id, $options),
            'webhook_endpoints.rotate_secret' => $c->webhookEndpoints->rotateSecret($id, $params, $options),
            'webhook_endpoints.ping' => $c->webhookEndpoints->ping($id, $options),
            'webhook_endpoints.deliveries' => $c->webhookEndpoints->deliveries($id, $params, $options),
            'webhook_endpoints.all_deliveries' => $this->collect($c->webhookEndpoints->allDeliveries($id, $params, $options), $args),
            'webhook_endpoints.retry_delivery' => $c->webhookEndpoints->retryDelivery($id, $args['delivery'], $options),
            'webhook_endpoints.recover' => $c->webhookEndpoints->recover($id, $args['since'], $options),
            'events.get' => $c->events->get($id, $options),
            'events.list' => $c->events->list($params, $options),
            'events.all' => $this->collect($c->events->all($params, $options), $args),
            'client.print' => null,
            'backoff.sample' => $this->samples($args),
            'webhooks.sign' => ['header' => WebhookSigner::sign(base64_decode($args['payload_base64'], true), $args['timestamp'], ...$args['secrets'])],
            'webhooks.verify', 'webhooks.construct_event' => $this->webhook($method, $args),
        };
    }

    private function webhook(string $method, array $args): mixed
    {
        $verifier = new WebhookVerifier($args['secrets'] ?? [], $args['tolerance_seconds'] ?? WebhookVerifier::DEFAULT_TOLERANCE, $this->clock);
        $payload = base64_decode($args['payload_base64'], true);
        $header = $args['header'] ?? null;
        if ($method === 'webhooks.construct_event') {
            return $verifier->constructEvent($payload, $header);
        }
        $verifier->verify($payload, $header);
        return ['verified' => true];
    }

    private function samples(array $args): array
    {
        $waits = [];
        for ($i = 0; $i < $args['count']; $i++) {
            $waits[] = RetryPolicy::backoff($args['n'], ($this->random)()) * 1000;
        }
        return $waits;
    }

    /** @param iterable<ApiObject> $objects */
    private function collect(iterable $objects, array $args): array
    {
        foreach ($objects as $object) {
            $this->ids[] = $object->id;
            if (count($this->ids) === ($args['take'] ?? 0)) {
                break;
            }
        }
        return ['ids' => $this->ids];
    }

    private static function error(Throwable $e): array
    {
        if (!$e instanceof ApiPayException) {
            return ['kind' => 'signature', 'code' => 'signature_verification_failed'];
        }
        $error = [
            'kind' => $e->kind->value, 'code' => $e->errorCode, 'status' => $e->status, 'problem' => $e->problem()?->members,
            'request_id' => $e->requestId, 'idempotency_key' => $e->idempotencyKey, 'retry_after' => $e->retryAfterHeader,
            'retry_after_seconds' => $e->retryAfter, 'attempts' => $e->attempts, 'has_cause' => $e->getPrevious() !== null,
        ];
        if ($e->status !== null) {
            $error['body_length'] = strlen($e->body());
            $error['body_prefix'] = mb_scrub(substr($e->body(), 0, 100));
        }
        return array_filter($error, static fn (mixed $value): bool => $value !== null);
    }

    /** Every form in which a program may print a value. */
    private static function printed(object $value): array
    {
        ob_start();
        var_dump($value);
        $dump = ob_get_clean();
        $forms = [$dump, print_r($value, true), var_export($value, true), print_r((array) $value, true)];
        if ($value instanceof Throwable) {
            $forms[] = (string) $value;
            $forms[] = (string) new RuntimeException('creating the payment', 0, $value);
            $forms[] = print_r($value->getTrace(), true) . $value->getTraceAsString() . $value->getMessage() . json_encode($value);
            for ($previous = $value->getPrevious(); $previous !== null; $previous = $previous->getPrevious()) {
                $forms[] = $previous . print_r($previous, true) . var_export($previous, true);
            }
        }
        if ($value instanceof Client) {
            foreach ([$value->paymentIntents, $value->refunds, $value->webhookEndpoints, $value->events] as $service) {
                $forms[] = print_r($service, true) . var_export($service, true) . print_r((array) $service, true) . json_encode($service);
            }
            $forms[] = json_encode($value);
        }
        if ($value instanceof ApiObject) {
            $forms[] = print_r($value->members(), true);
        }
        return array_map(mb_scrub(...), $forms);
    }
}

while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, false, 512, JSON_THROW_ON_ERROR);
    $runner = new Runner($job->client);
    $answer = ['vector' => $job->vector, 'steps' => array_map($runner->step(...), $job->steps)];
    fwrite(STDOUT, json_encode($answer, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION) . "\n");
    fflush(STDOUT);
}
