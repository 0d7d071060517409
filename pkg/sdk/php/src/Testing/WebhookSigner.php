<?php

declare(strict_types=1);

namespace ApiPay\Testing;

/** Signs payloads as ApiPay does, for tests of receivers. */
final class WebhookSigner
{
    /**
     * Makes the value of ApiPay-Signature.
     *
     * @param string $payload    the body's bytes
     * @param int    $time       when it is signed, in Unix seconds
     * @param string ...$secrets during a rotation with the active one first
     */
    public static function sign(string $payload, int $time, #[\SensitiveParameter] string ...$secrets): string
    {
        $header = "t=$time";
        foreach ($secrets as $secret) {
            $header .= ',v1=' . hash_hmac('sha256', "$time.$payload", $secret);
        }
        return $header;
    }
}
