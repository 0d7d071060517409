<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * The calculations of the retry policy: how long to wait, and what Retry-After says.
 *
 * @internal
 */
final class RetryPolicy
{
    private const BASE_SECONDS = 0.5;
    private const CEILING_SECONDS = 8.0;
    private const CEILING_N = 4; // base * 2^4 is the ceiling
    private const MAX_RETRY_AFTER = 60;
    private const LARGEST = 2147483647;
    /** The only form of date that counts: IMF-fixdate. */
    private const IMF_FIXDATE = 'D, d M Y H:i:s \G\M\T';

    /** The wait before retry n+1 in seconds, n from 0: full jitter, random times the smaller of 500 ms * 2^n and 8 s. */
    public static function backoff(int $n, float $random): float
    {
        $limit = $n < self::CEILING_N ? self::BASE_SECONDS * (1 << max($n, 0)) : self::CEILING_SECONDS;
        return $random >= 0 ? min($random, 1.0) * $limit : 0.0;
    }

    /** The source of jitter; keys do not come from it. */
    public static function random(): float
    {
        return random_int(0, (1 << 53) - 1) / (1 << 53);
    }

    /** The wait in seconds before the answer with this status and code is asked for again. */
    public static function wait(int $n, float $random, int $status, string $code, ?int $retryAfter): float
    {
        $obeyed = ($status === 429 && $code === ErrorCode::RATE_LIMITED) || ($status === 503 && $code === ErrorCode::GATEWAY_UNAVAILABLE);
        return $obeyed && $retryAfter !== null ? (float) min($retryAfter, self::MAX_RETRY_AFTER) : self::backoff($n, $random);
    }

    /**
     * Reads a Retry-After header: how many whole seconds from now it asks for, rounded up and never negative. Only digits and
     * IMF-fixdate count; null for anything else, and for a header that is there more than once.
     *
     * @param list<string> $values
     */
    public static function retryAfter(array $values, \DateTimeInterface $now): ?int
    {
        if (count($values) !== 1) {
            return null;
        }
        $text = trim($values[0], " \t");
        if (preg_match('/\A[0-9]+\z/', $text) === 1) {
            $digits = ltrim($text, '0');
            return strlen($digits) > 10 ? self::LARGEST : min((int) $digits, self::LARGEST); // RFC 9111: saturate
        }
        $date = \DateTimeImmutable::createFromFormat('!' . self::IMF_FIXDATE, $text, new \DateTimeZone('UTC'));
        if ($date === false || $date->format(self::IMF_FIXDATE) !== $text) {
            return null;
        }
        $micros = ($date->getTimestamp() - $now->getTimestamp()) * 1_000_000 - (int) $now->format('u');
        return $micros <= 0 ? 0 : min(intdiv($micros - 1, 1_000_000) + 1, self::LARGEST);
    }
}
