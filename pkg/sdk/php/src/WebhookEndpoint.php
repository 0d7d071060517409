<?php

declare(strict_types=1);

namespace ApiPay;

/** An address that events are delivered to. */
final class WebhookEndpoint extends ApiObject
{
    public readonly string $id;
    public readonly ?string $url;
    /** @var list<string>  */
    public readonly array $enabledEvents;
    public readonly ?string $description;
    /** enabled or disabled; expect others. */
    public readonly ?string $status;
    public readonly ?string $disabledReason;
    public readonly bool $livemode;
    /** Unix seconds. */
    public readonly int $created;
    /** Rises by one with each event about the object: of two, the higher is later. */
    public readonly int $version;
    /** Only in the answers of create and rotateSecret. It prints as [redacted]. */
    public readonly ?Secret $secret;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        $secret = $members->secret ?? null;
        if ($secret !== null && !is_string($secret)) {
            throw new InvalidMember('secret');
        }
        if ($secret !== null) {
            $members = clone $members;
            $members->secret = new Secret($secret); // so that no printed form of the members has it
        }
        parent::__construct($members);
        $this->secret = $secret === null ? null : $members->secret;
        $this->id = $this->requiredText('id');
        $this->url = $this->text('url');
        $this->enabledEvents = $this->textList('enabled_events');
        $this->description = $this->text('description');
        $this->status = $this->text('status');
        $this->disabledReason = $this->text('disabled_reason');
        $this->livemode = $this->bool('livemode');
        $this->created = $this->integer('created');
        $this->version = $this->integer('version');
    }
}
