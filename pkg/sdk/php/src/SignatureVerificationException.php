<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * Says that a payload is not, or not recently, signed with any of the secrets. Answer 400 and do nothing else. Its text is
 * fixed: it never carries what was received.
 */
final class SignatureVerificationException extends \RuntimeException
{
    /** @internal */
    public function __construct(string $reason)
    {
        parent::__construct('apipay: webhook signature: ' . $reason);
        TransportFailure::stripArguments($this);
    }
}
