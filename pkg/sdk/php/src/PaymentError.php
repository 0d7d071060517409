<?php

declare(strict_types=1);

namespace ApiPay;

/** Why the last attempt of a payment failed. */
final class PaymentError extends ApiObject
{
    public readonly ?string $code;
    public readonly ?string $declineCode;
    /** For people. */
    public readonly ?string $message;

    /** @internal */
    public function __construct(#[\SensitiveParameter] \stdClass $members)
    {
        parent::__construct($members);
        $this->code = $this->text('code');
        $this->declineCode = $this->text('decline_code');
        $this->message = $this->text('message');
    }
}
