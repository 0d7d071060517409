<?php

declare(strict_types=1);

namespace ApiPay;

/** A request to send again what failed. */
final class Recovery extends ApiObject
{
    public readonly string $id;
    public readonly ?string $endpointId;
    /** Unix seconds. */
    public readonly int $since;
    public readonly ?string $status;
    public readonly bool $livemode;
    public readonly int $created;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->requiredText('id');
        $this->endpointId = $this->text('endpoint_id');
        $this->since = $this->integer('since');
        $this->status = $this->text('status');
        $this->livemode = $this->bool('livemode');
        $this->created = $this->integer('created');
    }
}
