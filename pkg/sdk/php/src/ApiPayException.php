<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * What every call of the SDK fails with.
 *
 * After an error of a POST, store $idempotencyKey and call again with the same key, and the same parameters, until there is an
 * answer: the same key can never charge twice. A new key is a new charge.
 *
 * Its printed forms tell what happened and never what the server or you wrote: no detail, no body, no credentials, and no
 * arguments in its trace. problem() and body() have the server's words.
 */
final class ApiPayException extends \RuntimeException implements \JsonSerializable
{
    private readonly Hidden $hidden;

    /**
     * @internal
     *
     * @param string      $errorCode         the stable code to branch on, see ErrorCode
     * @param int|null    $status            the answer's HTTP status; null without an answer
     * @param string|null $requestId         names the call in ApiPay's logs: the answer's X-Request-Id
     * @param string|null $idempotencyKey    the key that the POST was, or would have been, sent with
     * @param int|null    $retryAfter        what Retry-After asks for, in whole seconds; null if there is none or it is unusable
     * @param string|null $retryAfterHeader  the text of Retry-After, also when it is unusable
     * @param int         $attempts          how many attempts were begun
     */
    public function __construct(
        public readonly ErrorKind $kind,
        public readonly string $errorCode,
        public readonly ?int $status = null,
        public readonly ?string $requestId = null,
        public readonly ?string $idempotencyKey = null,
        public readonly ?int $retryAfter = null,
        public readonly ?string $retryAfterHeader = null,
        public readonly int $attempts = 0,
        #[\SensitiveParameter] string $body = '',
        #[\SensitiveParameter] ?Problem $problem = null,
        ?\Throwable $previous = null,
    ) {
        $this->hidden = new Hidden([$body, $problem]);
        parent::__construct($this->summary($previous), 0, $previous);
        TransportFailure::stripArguments($this);
    }

    /** @internal */
    public static function refusal(string $reason): self
    {
        return new self(ErrorKind::Argument, ErrorCode::INVALID_ARGUMENT, previous: new TransportFailure($reason));
    }

    /** The answer's problem document; null if its body is no JSON object. */
    public function problem(): ?Problem
    {
        return $this->hidden->value()[1];
    }

    /** The answer's raw body, its first MiB at most. */
    public function body(): string
    {
        return $this->hidden->value()[0];
    }

    private function summary(?\Throwable $previous): string
    {
        $text = "apipay: {$this->kind->value} error: " . self::printable($this->errorCode);
        if ($this->status !== null) {
            $text .= " (status {$this->status})";
        }
        if ($this->requestId !== null) {
            $text .= ', request ' . self::printable($this->requestId);
        }
        if ($this->idempotencyKey !== null) {
            $text .= ", idempotency key {$this->idempotencyKey}";
        }
        if ($this->attempts > 0) {
            $text .= ", attempts {$this->attempts}";
        }
        if ($this->kind === ErrorKind::Argument && $previous !== null) {
            $text .= ': ' . $previous->getMessage(); // written by the SDK
        }
        return $text;
    }

    /** Code and request id come from outside: what does not look like one is not printed. */
    private static function printable(string $text): string
    {
        return preg_match('/\A[A-Za-z0-9_.-]{1,128}\z/', $text) === 1 ? $text : '[not printable]';
    }

    public function __debugInfo(): array
    {
        return ['message' => $this->getMessage(), 'file' => $this->getFile(), 'line' => $this->getLine()] + $this->jsonSerialize();
    }

    public function jsonSerialize(): array
    {
        return array_filter([
            'kind' => $this->kind->value, 'code' => self::printable($this->errorCode), 'status' => $this->status,
            'request_id' => $this->requestId === null ? null : self::printable($this->requestId),
            'idempotency_key' => $this->idempotencyKey, 'attempts' => $this->attempts,
        ], static fn (mixed $value): bool => $value !== null);
    }
}
