<?php

declare(strict_types=1);

namespace ApiPay;

/** The call that caused an event. */
final class EventRequest extends ApiObject
{
    public readonly ?string $id;
    public readonly ?string $idempotencyKey;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->text('id');
        $this->idempotencyKey = $this->text('idempotency_key');
    }
}
