<?php

declare(strict_types=1);

namespace ApiPay;

/** Money given back. */
final class Refund extends ApiObject
{
    public readonly string $id;
    /** The id of the payment. */
    public readonly ?string $paymentIntent;
    /** In the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY. */
    public readonly int $amount;
    public readonly ?string $currency;
    /** pending, succeeded or failed; expect others. */
    public readonly ?string $status;
    public readonly ?string $failureReason;
    public readonly ?string $reason;
    /** @var array<string, string>  */
    public readonly array $metadata;
    public readonly bool $livemode;
    /** Unix seconds. */
    public readonly int $created;
    /** Rises by one with each event about the object: of two, the higher is later. */
    public readonly int $version;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->requiredText('id');
        $this->paymentIntent = $this->text('payment_intent');
        $this->amount = $this->integer('amount');
        $this->currency = $this->text('currency');
        $this->status = $this->text('status');
        $this->failureReason = $this->text('failure_reason');
        $this->reason = $this->text('reason');
        $this->metadata = $this->texts('metadata');
        $this->livemode = $this->bool('livemode');
        $this->created = $this->integer('created');
        $this->version = $this->integer('version');
    }
}
