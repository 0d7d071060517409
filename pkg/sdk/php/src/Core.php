<?php

declare(strict_types=1);

namespace ApiPay;

use ApiPay\Http\Answer;
use ApiPay\Http\CurlClient;
use Psr\Http\Client\ClientExceptionInterface;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestFactoryInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\StreamFactoryInterface;

/**
 * Makes calls: one attempt, and for a GET the retries that the policy allows.
 *
 * @internal
 */
final class Core
{
    private const MAX_ERROR_BODY = 1 << 20;
    private const MAX_SUCCESS_BODY = 16 << 20;

    public function __construct(
        private readonly string $baseUrl,
        private readonly Hidden $apiKey,
        private readonly float $timeout,
        private readonly int $maxRetries,
        private readonly \Closure $clock,
        private readonly \Closure $sleeper,
        private readonly \Closure $random,
        private readonly ClientInterface $http,
        private readonly RequestFactoryInterface $requests,
        private readonly StreamFactoryInterface $streams,
    ) {
    }

    /**
     * @param list<string>                           $path   names and ids in turn
     * @param array<string, mixed>|null              $params the query of a GET, else the body; null for an empty body
     * @param (callable(\stdClass): ApiObject)|null  $reader null if the answer's body is ignored
     */
    public function call(string $method, array $path, #[\SensitiveParameter] ?array $params, ?callable $reader, ?RequestOptions $options): ?ApiObject
    {
        $options ??= new RequestOptions();
        $options->check();
        $begun = hrtime(true);
        $key = $method === 'POST' ? $options->idempotencyKey ?? self::newKey() : null;
        $request = $this->request($method, $path, $params, $key, $options);
        for ($attempts = 1; ; $attempts++) {
            $left = $options->deadline === null ? INF : $options->deadline - (hrtime(true) - $begun) / 1e9;
            if ($left <= 0) {
                throw new ApiPayException(ErrorKind::Timeout, ErrorCode::TIMEOUT, idempotencyKey: $key, attempts: $attempts - 1,
                    previous: new TransportFailure('the call reached its deadline', true));
            }
            $answer = $this->attempt($request, min($options->timeout ?? $this->timeout, $left));
            if ($answer->failure === null && $answer->success()) {
                return $this->read($answer, $reader, $key, $attempts);
            }
            $failure = $this->failure($answer, $key, $attempts);
            // Whether a request without an answer arrived cannot be told through PSR-18, so no failed connection is retried.
            $retryable = $failure->kind === ErrorKind::Api && ($failure->status === 429 || $failure->status >= 500);
            if ($method !== 'GET' || !$retryable || $attempts > $this->maxRetries) {
                throw $failure;
            }
            $wait = RetryPolicy::wait($attempts - 1, ($this->random)(), $failure->status, $failure->errorCode, $failure->retryAfter);
            if ($options->deadline !== null && (hrtime(true) - $begun) / 1e9 + $wait >= $options->deadline) {
                throw $failure;
            }
            ($this->sleeper)($wait);
        }
    }

    private function attempt(#[\SensitiveParameter] RequestInterface $request, float $timeout): Answer
    {
        if ($this->http instanceof CurlClient) {
            return $this->http->exchange($request, $timeout, self::MAX_SUCCESS_BODY, self::MAX_ERROR_BODY);
        }
        // Another client's transport may repeat a request on a connection that it reuses. A server that gets this header closes.
        $answer = new Answer();
        try {
            $response = $this->http->sendRequest($request->withHeader('Connection', 'close'));
            $answer->status = $response->getStatusCode();
            foreach ($response->getHeaders() as $name => $values) {
                $answer->headers[strtolower((string) $name)] = array_values($values);
            }
            $limit = $answer->success() ? self::MAX_SUCCESS_BODY : self::MAX_ERROR_BODY;
            $body = $response->getBody();
            if ($body->isSeekable()) {
                $body->rewind();
            }
            while (!$answer->tooLarge && !$body->eof()) {
                $answer->bodyPart($body->read(65536), $limit, $limit);
            }
        } catch (ClientExceptionInterface|\RuntimeException $e) {
            // Its text and its request may have the API key.
            $answer->failure = new TransportFailure('the HTTP client failed: ' . $e::class);
        }
        return $answer;
    }

    private function failure(Answer $answer, ?string $key, int $attempts): ApiPayException
    {
        $requestId = $answer->header('X-Request-Id');
        if ($answer->failure !== null) {
            [$kind, $code] = $answer->failure->timedOut
                ? [ErrorKind::Timeout, ErrorCode::TIMEOUT]
                : [ErrorKind::Connection, ErrorCode::CONNECTION_ERROR];
            return new ApiPayException($kind, $code, $answer->status, $requestId, $key, attempts: $attempts, previous: $answer->failure);
        }
        $problem = null;
        try {
            $problem = new Problem(Json::object($answer->body));
        } catch (InvalidJson) {
            // An answer that is not the API's; its body is kept.
        }
        $retryAfter = $answer->headerValues('Retry-After');
        return new ApiPayException(
            ErrorKind::Api,
            ($problem?->code() ?? '') === '' ? ErrorCode::UNKNOWN : $problem->code(),
            $answer->status,
            $requestId,
            $key,
            RetryPolicy::retryAfter($retryAfter, ($this->clock)()),
            $retryAfter === [] ? null : implode(', ', $retryAfter),
            $attempts,
            $answer->body,
            $problem,
        );
    }

    private function read(Answer $answer, ?callable $reader, ?string $key, int $attempts): ?ApiObject
    {
        if ($reader === null) {
            return null;
        }
        $requestId = $answer->header('X-Request-Id');
        try {
            if ($answer->tooLarge) {
                throw new InvalidJson('the answer is larger than 16 MiB');
            }
            $replayed = strtolower($answer->header('Idempotent-Replayed') ?? '') === 'true';
            return $reader(Json::object($answer->body))
                ->answeredBy(new ApiResponse((int) $answer->status, $requestId, $key, $replayed, $attempts));
        } catch (InvalidJson|InvalidMember $e) {
            throw new ApiPayException(ErrorKind::Decode, ErrorCode::INVALID_RESPONSE, $answer->status, $requestId, $key, attempts: $attempts,
                body: substr($answer->body, 0, self::MAX_ERROR_BODY), previous: new TransportFailure($e->getMessage()));
        }
    }

    private function request(string $method, array $path, #[\SensitiveParameter] ?array $params, ?string $key, RequestOptions $options): RequestInterface
    {
        $url = $this->baseUrl . '/v1' . self::path($path);
        $body = '';
        if ($method === 'GET' && $params !== null && $params !== []) {
            $url .= '?' . http_build_query($params, '', '&', PHP_QUERY_RFC3986);
        } elseif ($method !== 'GET' && $params !== null) {
            if (array_key_exists('amount', $params) && !is_int($params['amount'])) {
                throw ApiPayException::refusal('an amount is an integer in the minor unit'); // 19.99 * 100 is 1998.99...
            }
            $body = Json::encode($params);
        }
        $request = $this->requests->createRequest($method, $url)
            ->withHeader('Accept', 'application/json, application/problem+json')
            ->withHeader('User-Agent', 'apipay-php/' . Client::VERSION . ' (PHP ' . PHP_VERSION . ')');
        foreach ($options->headers as $name => $value) {
            $request = $request->withHeader((string) $name, $value);
        }
        $request = $request->withHeader('Authorization', 'Bearer ' . $this->apiKey->value());
        if ($body !== '') {
            $request = $request->withHeader('Content-Type', 'application/json')->withBody($this->streams->createStream($body));
        }
        return $key === null ? $request : $request->withHeader('Idempotency-Key', $key);
    }

    /** Every second part is an id; with any other character an id could change the path. */
    private static function path(array $parts): string
    {
        foreach ($parts as $i => $part) {
            if ($i % 2 === 1 && preg_match('/\A[A-Za-z0-9_-]+\z/', $part) !== 1) {
                throw ApiPayException::refusal('that is not an id');
            }
        }
        return '/' . implode('/', $parts);
    }

    /** A random UUID v4. */
    private static function newKey(): string
    {
        $bytes = random_bytes(16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }

    public function __debugInfo(): array
    {
        return ['baseUrl' => $this->baseUrl];
    }
}
