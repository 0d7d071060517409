<?php

declare(strict_types=1);

namespace ApiPay;

/** One event on its way to one endpoint. */
final class WebhookDelivery extends ApiObject
{
    public readonly string $id;
    public readonly ?string $endpointId;
    public readonly ?string $endpointUrl;
    public readonly ?string $eventId;
    public readonly ?string $eventType;
    /** PENDING, RETRYING, DELIVERED or FAILED. */
    public readonly ?string $status;
    public readonly int $attemptCount;
    /** Unix seconds. */
    public readonly ?int $nextAttemptAt;
    /** Why it waits. */
    public readonly ?string $held;
    public readonly ?int $deliveredAt;
    public readonly ?int $failedAt;
    public readonly ?string $failureReason;
    public readonly int $createdAt;
    /** @var list<DeliveryAttempt>  */
    public readonly array $attempts;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->requiredText('id');
        $this->endpointId = $this->text('endpoint_id');
        $this->endpointUrl = $this->text('endpoint_url');
        $this->eventId = $this->text('event_id');
        $this->eventType = $this->text('event_type');
        $this->status = $this->text('status');
        $this->attemptCount = $this->integer('attempt_count');
        $this->nextAttemptAt = $this->integerOrNull('next_attempt_at');
        $this->held = $this->text('held');
        $this->deliveredAt = $this->integerOrNull('delivered_at');
        $this->failedAt = $this->integerOrNull('failed_at');
        $this->failureReason = $this->text('failure_reason');
        $this->createdAt = $this->integer('created_at');
        $this->attempts = $this->objects('attempts', static fn (\stdClass $object): DeliveryAttempt => new DeliveryAttempt($object));
    }
}
