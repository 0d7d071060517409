<?php

declare(strict_types=1);

namespace ApiPay;

/** Options of one call. What is refused fails the call, before it is sent. */
final class RequestOptions
{
    private const RESERVED = ['authorization', 'idempotency-key', 'host', 'content-length', 'content-type', 'transfer-encoding',
        'connection', 'trailer', 'expect', 'upgrade'];

    /**
     * @param string|null           $idempotencyKey the key of a POST: 1 to 255 visible ASCII characters, sent as it is. Without it
     *                                              each call gets a new UUID v4. After an error, call again with its key
     * @param float|null            $timeout        seconds for each attempt, in place of the client's
     * @param float|null            $deadline       seconds for the call as a whole, waits included
     * @param array<string, string> $headers        further headers; the SDK's own cannot be set
     */
    public function __construct(
        public readonly ?string $idempotencyKey = null,
        public readonly ?float $timeout = null,
        public readonly ?float $deadline = null,
        #[\SensitiveParameter] public readonly array $headers = [],
    ) {
    }

    /** @internal throws a refusal if the options cannot be used */
    public function check(): void
    {
        if ($this->idempotencyKey !== null && preg_match('/\A[\x21-\x7e]{1,255}\z/', $this->idempotencyKey) !== 1) {
            throw ApiPayException::refusal('an idempotency key has 1 to 255 visible ASCII characters');
        }
        if ($this->timeout !== null && !($this->timeout > 0)) {
            throw ApiPayException::refusal('a timeout must be positive');
        }
        foreach ($this->headers as $name => $value) {
            if (preg_match('/\A[!#$%&\'*+.^_`|~0-9A-Za-z-]+\z/', (string) $name) !== 1) {
                throw ApiPayException::refusal("that is not a header's name");
            }
            if (in_array(strtolower((string) $name), self::RESERVED, true)) {
                throw ApiPayException::refusal('the SDK sets ' . strtolower((string) $name) . ' itself');
            }
            if (!is_string($value) || preg_match('/\A[\t\x20-\x7e]*\z/', $value) !== 1) {
                throw ApiPayException::refusal("a header's value is printable ASCII, without line breaks");
            }
        }
    }
}
