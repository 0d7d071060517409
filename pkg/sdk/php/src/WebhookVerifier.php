<?php

declare(strict_types=1);

namespace ApiPay;

use Psr\Http\Message\MessageInterface;

/** Verifies the deliveries of webhooks. */
final class WebhookVerifier
{
    /** The header that signs a delivery; in $_SERVER it is HTTP_APIPAY_SIGNATURE. */
    public const SIGNATURE_HEADER = 'ApiPay-Signature';
    /** How old, or how far ahead, a signature may be, in seconds. */
    public const DEFAULT_TOLERANCE = 300;

    private const MAX_HEADER = 4096;
    private const MAX_TIMESTAMP_DIGITS = 15;

    private readonly Hidden $secrets;

    /**
     * @param string|list<string> $secrets   the endpoint's secret; during a rotation the new one and the old one
     * @param int                 $tolerance in seconds; 0 allows the current second only
     * @param \Closure|null       $clock     gives the time as a \DateTimeInterface; default is the system's
     */
    public function __construct(
        #[\SensitiveParameter] string|array $secrets,
        private readonly int $tolerance = self::DEFAULT_TOLERANCE,
        private readonly ?\Closure $clock = null,
    ) {
        $this->secrets = new Hidden((array) $secrets);
    }

    /**
     * Checks that a header signs a payload.
     *
     * @param string      $payload the body's bytes as they were received: file_get_contents('php://input')
     * @param string|null $header  the value of ApiPay-Signature; null if there is none
     * @throws SignatureVerificationException for every refusal
     */
    public function verify(#[\SensitiveParameter] string $payload, #[\SensitiveParameter] ?string $header): void
    {
        $secrets = $this->secrets->value();
        if ($secrets === []) {
            throw new SignatureVerificationException('no secret is configured');
        }
        foreach ($secrets as $secret) {
            if (!is_string($secret) || $secret === '') { // the HMAC under an empty key is anybody's
                throw new SignatureVerificationException('a configured secret is empty');
            }
        }
        [$timestamp, $signatures] = self::parse($header);
        $digits = ltrim($timestamp, '0');
        $now = $this->clock === null ? time() : ($this->clock)()->getTimestamp();
        if (strlen($digits) > self::MAX_TIMESTAMP_DIGITS || abs($now - (int) $digits) > $this->tolerance) {
            throw new SignatureVerificationException('the timestamp is outside the tolerance');
        }
        $fits = false;
        foreach ($secrets as $secret) {
            $want = hash_hmac('sha256', $timestamp . '.' . $payload, $secret); // the digits as they were received
            foreach ($signatures as $signature) {
                $fits = hash_equals($want, $signature) || $fits;
            }
        }
        if (!$fits) {
            throw new SignatureVerificationException('no signature fits');
        }
    }

    /**
     * Verifies, and then reads the event.
     *
     * @throws SignatureVerificationException if the payload is not signed
     * @throws ApiPayException with invalid_response, if it is signed but is no event
     */
    public function constructEvent(#[\SensitiveParameter] string $payload, #[\SensitiveParameter] ?string $header): Event
    {
        $this->verify($payload, $header);
        $text = str_starts_with($payload, "\xef\xbb\xbf") ? substr($payload, 3) : $payload; // a byte order mark
        try {
            return new Event(Json::object($text));
        } catch (InvalidJson|InvalidMember $e) {
            throw new ApiPayException(ErrorKind::Decode, ErrorCode::INVALID_RESPONSE, previous: new TransportFailure($e->getMessage()));
        }
    }

    /**
     * Verifies a PSR-7 request, and then reads its event.
     *
     * @throws SignatureVerificationException if the payload is not signed, or there is not one header
     * @throws ApiPayException with invalid_response, if it is signed but is no event
     */
    public function eventFromRequest(#[\SensitiveParameter] MessageInterface $request): Event
    {
        $headers = $request->getHeader(self::SIGNATURE_HEADER);
        if (count($headers) !== 1) {
            throw new SignatureVerificationException('there must be one signature header');
        }
        return $this->constructEvent((string) $request->getBody(), $headers[0]);
    }

    /**
     * Reads "t=<digits>,v1=<hex>[,v1=<hex>]". Unknown elements are ignored, and so is a v1 that is no signature.
     *
     * @return array{string, list<string>}
     */
    private static function parse(#[\SensitiveParameter] ?string $header): array
    {
        if ($header === null || strlen($header) > self::MAX_HEADER) {
            throw new SignatureVerificationException('the header is malformed');
        }
        $timestamp = null;
        $signatures = [];
        foreach (explode(',', $header) as $part) {
            $element = explode('=', trim($part, " \t"), 2);
            if (count($element) !== 2) {
                throw new SignatureVerificationException('the header is malformed');
            }
            [$name, $value] = $element;
            if ($name === 't') {
                if ($timestamp !== null || preg_match('/\A[0-9]+\z/', $value) !== 1) {
                    throw new SignatureVerificationException('the header is malformed');
                }
                $timestamp = $value;
            } elseif ($name === 'v1' && preg_match('/\A[0-9a-f]{64}\z/', $value) === 1) {
                $signatures[] = $value;
            }
        }
        if ($timestamp === null) {
            throw new SignatureVerificationException('the header is malformed');
        }
        return [$timestamp, $signatures];
    }

    public function __debugInfo(): array
    {
        return ['tolerance' => $this->tolerance];
    }
}
