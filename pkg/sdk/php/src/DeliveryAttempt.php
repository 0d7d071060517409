<?php

declare(strict_types=1);

namespace ApiPay;

/** One POST of a delivery. */
final class DeliveryAttempt extends ApiObject
{
    public readonly int $number;
    /** scheduled, manual or recovery. */
    public readonly ?string $trigger;
    /** succeeded, failed, superseded or lost. */
    public readonly ?string $outcome;
    /** Unix seconds. */
    public readonly int $startedAt;
    public readonly ?int $latencyMs;
    public readonly ?int $statusCode;
    public readonly ?string $errorClass;
    public readonly ?string $responseExcerpt;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->number = $this->integer('number');
        $this->trigger = $this->text('trigger');
        $this->outcome = $this->text('outcome');
        $this->startedAt = $this->integer('started_at');
        $this->latencyMs = $this->integerOrNull('latency_ms');
        $this->statusCode = $this->integerOrNull('status_code');
        $this->errorClass = $this->text('error_class');
        $this->responseExcerpt = $this->text('response_excerpt');
    }
}
