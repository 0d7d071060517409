<?php

declare(strict_types=1);

namespace ApiPay\Http;

use ApiPay\TransportFailure;

/**
 * What arrives of an answer: status and headers also if the body does not.
 *
 * @internal
 */
final class Answer
{
    public ?int $status = null;
    /** @var array<string, list<string>> by lower-case name */
    public array $headers = [];
    public string $body = '';
    public bool $tooLarge = false;
    /** Why the answer is not complete. */
    public ?TransportFailure $failure = null;

    public function success(): bool
    {
        return $this->status !== null && $this->status >= 200 && $this->status <= 299;
    }

    public function header(string $name): ?string
    {
        return $this->headers[strtolower($name)][0] ?? null;
    }

    /** @return list<string> */
    public function headerValues(string $name): array
    {
        return $this->headers[strtolower($name)] ?? [];
    }

    /** Takes a line of a header section; a status line begins a new one, after a 1xx for instance. */
    public function headerLine(string $line): int
    {
        if (preg_match('/\AHTTP\/[0-9.]+ ([0-9]{3})/', $line, $match) === 1) {
            $this->status = (int) $match[1] >= 200 ? (int) $match[1] : null;
            $this->headers = [];
        } elseif (($colon = strpos($line, ':')) !== false) {
            $this->headers[strtolower(substr($line, 0, $colon))][] = trim(substr($line, $colon + 1), " \t\r\n");
        }
        return strlen($line);
    }

    /** Takes a part of the body; beyond the limit it asks curl to end the transfer. */
    public function bodyPart(string $data, int $maxSuccess, int $maxError): int
    {
        $room = ($this->success() ? $maxSuccess : $maxError) - strlen($this->body);
        if (strlen($data) > $room) {
            $this->body .= substr($data, 0, $room);
            $this->tooLarge = true;
            return 0;
        }
        $this->body .= $data;
        return strlen($data);
    }
}
