<?php

declare(strict_types=1);

namespace ApiPay;

/** An RFC 9457 problem document. A member of an unexpected type counts as missing; it is still in $members. */
final class Problem implements \JsonSerializable
{
    /** @internal */
    public function __construct(public readonly \stdClass $members)
    {
    }

    /** The page about the code. */
    public function type(): ?string
    {
        return $this->text('type');
    }

    public function title(): ?string
    {
        return $this->text('title');
    }

    /** What happened, for people. Do not branch on it. */
    public function detail(): ?string
    {
        return $this->text('detail');
    }

    public function code(): ?string
    {
        return $this->text('code');
    }

    public function declineCode(): ?string
    {
        return $this->text('decline_code');
    }

    /** The id of the payment intent that a failed create with confirm made. */
    public function paymentIntent(): ?string
    {
        return $this->text('payment_intent');
    }

    /** Says if the same call may succeed later. */
    public function retryable(): bool
    {
        return ($this->members->retryable ?? null) === true;
    }

    /**
     * The refused places of the request.
     *
     * @return list<\stdClass> each with its own members, e.g. pointer and code
     */
    public function errors(): array
    {
        $errors = $this->members->errors ?? null;
        return is_array($errors) ? array_values(array_filter($errors, static fn (mixed $e): bool => $e instanceof \stdClass)) : [];
    }

    private function text(string $name): ?string
    {
        $value = $this->members->{$name} ?? null;
        return is_string($value) ? $value : null;
    }

    public function jsonSerialize(): \stdClass
    {
        return $this->members;
    }
}
