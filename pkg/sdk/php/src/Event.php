<?php

declare(strict_types=1);

namespace ApiPay;

/** A fact that merchants are told. Its id is the same in every delivery: handle each id once. */
final class Event extends ApiObject
{
    public readonly string $id;
    /** E.g. payment_intent.succeeded; expect types that you do not know. */
    public readonly ?string $type;
    /** Unix seconds. */
    public readonly int $created;
    public readonly bool $livemode;
    public readonly ?string $apiVersion;
    /** What caused it. */
    public readonly ?EventRequest $request;
    /** The object as it was then. */
    public readonly ?\stdClass $object;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->id = $this->requiredText('id');
        $this->type = $this->text('type');
        $this->created = $this->integer('created');
        $this->livemode = $this->bool('livemode');
        $this->apiVersion = $this->text('api_version');
        $this->request = ($object = $this->object('request')) === null ? null : new EventRequest($object);
        $data = $this->object('data');
        $this->object = ($data?->object ?? null) instanceof \stdClass ? $data->object : null;
    }

    /** Reads the object of a payment_intent event. */
    public function paymentIntent(): PaymentIntent
    {
        return $this->objectAs(static fn (\stdClass $object): PaymentIntent => new PaymentIntent($object));
    }

    /** Reads the object of a refund event. */
    public function refund(): Refund
    {
        return $this->objectAs(static fn (\stdClass $object): Refund => new Refund($object));
    }

    /** Reads the object of a webhook_endpoint or ping event. */
    public function webhookEndpoint(): WebhookEndpoint
    {
        return $this->objectAs(static fn (\stdClass $object): WebhookEndpoint => new WebhookEndpoint($object));
    }

    private function objectAs(callable $reader): ApiObject
    {
        try {
            return $reader($this->object ?? new \stdClass());
        } catch (InvalidMember $e) {
            throw new ApiPayException(ErrorKind::Decode, ErrorCode::INVALID_RESPONSE, previous: new TransportFailure($e->getMessage()));
        }
    }
}
