<?php

declare(strict_types=1);

namespace ApiPay;

/** One payment. */
final class PaymentIntent extends ApiObject
{
    public readonly string $id;
    /** In the currency's minor unit: 1000 is 10.00 EUR, and 1000 JPY. */
    public readonly int $amount;
    public readonly int $amountRefunded;
    /** ISO 4217, in upper case. */
    public readonly ?string $currency;
    /** requires_payment_method, requires_confirmation, processing, succeeded or canceled; expect others. */
    public readonly ?string $status;
    public readonly bool $livemode;
    /** Unix seconds. */
    public readonly int $created;
    public readonly ?string $description;
    /** @var array<string, string>  */
    public readonly array $metadata;
    public readonly ?string $merchantReference;
    public readonly ?string $paymentMethod;
    /** Why the last attempt failed. */
    public readonly ?PaymentError $lastPaymentError;
    public readonly ?string $latestAttempt;
    /** Rises by one with each event about the object: of two, the higher is later. */
    public readonly int $version;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->requiredText('id');
        $this->amount = $this->integer('amount');
        $this->amountRefunded = $this->integer('amount_refunded');
        $this->currency = $this->text('currency');
        $this->status = $this->text('status');
        $this->livemode = $this->bool('livemode');
        $this->created = $this->integer('created');
        $this->description = $this->text('description');
        $this->metadata = $this->texts('metadata');
        $this->merchantReference = $this->text('merchant_reference');
        $this->paymentMethod = $this->text('payment_method');
        $this->lastPaymentError = ($object = $this->object('last_payment_error')) === null ? null : new PaymentError($object);
        $this->latestAttempt = $this->text('latest_attempt');
        $this->version = $this->integer('version');
    }
}
