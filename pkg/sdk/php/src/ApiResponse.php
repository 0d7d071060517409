<?php

declare(strict_types=1);

namespace ApiPay;

/** What a successful call was answered with, besides the object. */
final class ApiResponse
{
    /**
     * @param int         $status         201 for what was created, 202 while an outcome is unknown
     * @param string|null $requestId      names the call in ApiPay's logs
     * @param string|null $idempotencyKey the key that the POST was sent with
     * @param bool        $replayed       the key was known: the answer is that of the first call
     * @param int         $attempts       how many attempts were made
     */
    public function __construct(
        public readonly int $status,
        public readonly ?string $requestId,
        public readonly ?string $idempotencyKey,
        public readonly bool $replayed,
        public readonly int $attempts,
    ) {
    }
}
