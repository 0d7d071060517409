<?php

declare(strict_types=1);

namespace ApiPay;

use ApiPay\Http\CurlClient;
use Nyholm\Psr7\Factory\Psr17Factory;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestFactoryInterface;
use Psr\Http\Message\StreamFactoryInterface;

/**
 * Calls ApiPay with one API key. Make one and keep it, since it holds the connection. Every call fails with an ApiPayException.
 *
 *     $apipay = new ApiPay\Client(getenv('APIPAY_API_KEY'));
 *     $intent = $apipay->paymentIntents->create(['amount' => 1000, 'currency' => 'EUR']); // 10.00 EUR
 */
final class Client
{
    public const VERSION = '1.0.0';
    /** Where ApiPay is reached unless the client is told otherwise. */
    public const DEFAULT_BASE_URL = 'https://api.apipay.io';

    public readonly PaymentIntents $paymentIntents;
    public readonly Refunds $refunds;
    public readonly WebhookEndpoints $webhookEndpoints;
    public readonly Events $events;

    /**
     * @param string                       $apiKey         "apk_test_..." or "apk_live_..."
     * @param string                       $baseUrl        the address of ApiPay, e.g. that of a local stack; a path in it is kept
     * @param float                        $timeout        seconds for each attempt, from connecting to the last byte of the answer
     * @param float                        $connectTimeout seconds for connecting
     * @param int                          $maxRetries     how often a GET is repeated at most; a POST is never repeated
     * @param \Closure|null                $clock          gives the time as a \DateTimeInterface; for dates in Retry-After
     * @param \Closure|null                $sleeper        waits for a number of seconds, a float
     * @param \Closure|null                $random         gives numbers in [0,1) for jitter; keys do not come from it
     * @param ClientInterface|null         $httpClient     another PSR-18 client, without repeats and redirects; its own
     *                                                     timeouts hold then, and the SDK sends "Connection: close", since
     *                                                     transports repeat requests on connections that they reuse
     * @param RequestFactoryInterface|null $requestFactory another PSR-17 factory
     * @param StreamFactoryInterface|null  $streamFactory  another PSR-17 factory
     * @param array<int, mixed>            $curlOptions    further options of the default client, e.g. CURLOPT_PROXY
     */
    public function __construct(
        #[\SensitiveParameter] string $apiKey,
        private readonly string $baseUrl = self::DEFAULT_BASE_URL,
        float $timeout = 30.0,
        float $connectTimeout = 10.0,
        int $maxRetries = 2,
        ?\Closure $clock = null,
        ?\Closure $sleeper = null,
        ?\Closure $random = null,
        ?ClientInterface $httpClient = null,
        ?RequestFactoryInterface $requestFactory = null,
        ?StreamFactoryInterface $streamFactory = null,
        #[\SensitiveParameter] array $curlOptions = [],
    ) {
        if (preg_match('/\A[\x21-\x7e]+\z/', $apiKey) !== 1) {
            throw ApiPayException::refusal('the API key is empty or has characters that no key has');
        }
        $url = parse_url($baseUrl);
        if (!is_array($url) || !in_array(strtolower($url['scheme'] ?? ''), ['http', 'https'], true) || ($url['host'] ?? '') === ''
            || isset($url['user']) || isset($url['query']) || isset($url['fragment'])) {
            throw ApiPayException::refusal('the base URL must be http(s)://host[:port][/path]');
        }
        if (!($timeout > 0) || !($connectTimeout > 0)) {
            throw ApiPayException::refusal('a timeout must be positive');
        }
        if ($maxRetries < 0) {
            throw ApiPayException::refusal('maxRetries must not be negative');
        }
        $core = new Core(
            rtrim($baseUrl, '/'),
            new Hidden($apiKey),
            $timeout,
            $maxRetries,
            $clock ?? static fn (): \DateTimeImmutable => new \DateTimeImmutable(),
            $sleeper ?? static fn (float $seconds) => usleep((int) ceil($seconds * 1e6)),
            $random ?? RetryPolicy::random(...),
            $httpClient ?? new CurlClient($timeout, $connectTimeout, $curlOptions),
            $requestFactory ?? new Psr17Factory(),
            $streamFactory ?? new Psr17Factory(),
        );
        $this->paymentIntents = new PaymentIntents($core);
        $this->refunds = new Refunds($core);
        $this->webhookEndpoints = new WebhookEndpoints($core);
        $this->events = new Events($core);
    }

    public function __debugInfo(): array
    {
        return ['baseUrl' => $this->baseUrl];
    }
}
