<?php

declare(strict_types=1);

namespace ApiPay\Http;

use ApiPay\TransportFailure;
use Nyholm\Psr7\Response;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

/**
 * The PSR-18 client that the SDK uses unless it is given another: curl, kept from sending anything a second time. It keeps its
 * connection, follows no redirects, and speaks HTTP/1.1.
 */
final class CurlClient implements ClientInterface
{
    private ?\CurlHandle $handle = null;

    /**
     * @param float                $timeout        seconds for a request, from connecting to the last byte of the answer
     * @param float                $connectTimeout seconds for connecting, TLS included
     * @param array<int, mixed>    $options        further curl options, e.g. CURLOPT_PROXY or CURLOPT_CAINFO; the client's own win
     */
    public function __construct(
        private readonly float $timeout = 30.0,
        private readonly float $connectTimeout = 10.0,
        #[\SensitiveParameter] private readonly array $options = [],
    ) {
    }

    public function sendRequest(#[\SensitiveParameter] RequestInterface $request): ResponseInterface
    {
        $answer = $this->exchange($request, $this->timeout, PHP_INT_MAX, PHP_INT_MAX);
        if ($answer->failure !== null) {
            throw new NetworkException($request, $answer->failure);
        }
        try {
            return new Response($answer->status ?? 0, $answer->headers, $answer->body);
        } catch (\InvalidArgumentException) {
            throw new NetworkException($request, new TransportFailure('the answer is not HTTP'));
        }
    }

    /**
     * Sends a request within a time, and reads no more of the body than its limit.
     *
     * @internal
     */
    public function exchange(#[\SensitiveParameter] RequestInterface $request, float $timeout, int $maxSuccess, int $maxError): Answer
    {
        $curl = $this->handle ??= curl_init();
        curl_reset($curl); // forgets the options, and keeps the connection
        $answer = new Answer();
        curl_setopt_array($curl, $this->options + [CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS]);
        curl_setopt_array($curl, [
            CURLOPT_URL => (string) $request->getUri(),
            CURLOPT_HTTPHEADER => self::headers($request),
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_TIMEOUT_MS => max(1, (int) ceil($timeout * 1000)),
            CURLOPT_CONNECTTIMEOUT_MS => max(1, (int) ceil($this->connectTimeout * 1000)),
            CURLOPT_HEADERFUNCTION => static fn (\CurlHandle $c, string $line): int => $answer->headerLine($line),
            CURLOPT_WRITEFUNCTION => static fn (\CurlHandle $c, string $data): int => $answer->bodyPart($data, $maxSuccess, $maxError),
        ] + self::method($request));
        self::sendOnce($curl);
        curl_exec($curl);
        $error = curl_errno($curl);
        // A body that was cut at its limit ends the transfer with a write error of our own making.
        if ($error !== CURLE_OK && !($error === CURLE_WRITE_ERROR && $answer->tooLarge)) {
            // curl_error() may quote what came from outside.
            $reason = $error === CURLE_UNSUPPORTED_PROTOCOL && $answer->status === null
                ? 'the connection ended without an answer'
                : curl_strerror($error);
            $answer->failure = new TransportFailure("curl error $error: $reason", $error === CURLE_OPERATION_TIMEDOUT);
        }
        return $answer;
    }

    /**
     * Keeps libcurl from repeating the request. On a reused connection that ends without an answer it connects and sends again,
     * whatever the method, and has no option against it. But it looks at the allowed protocols each time it connects: once
     * bytes of the request were written, none that fits is allowed, so the repeat ends before it has a connection.
     */
    private static function sendOnce(\CurlHandle $curl): void
    {
        $locked = false;
        $progress = static function (\CurlHandle $c) use (&$locked): int {
            if (!$locked && curl_getinfo($c, CURLINFO_REQUEST_SIZE) > 0) {
                $locked = true;
                curl_setopt($c, CURLOPT_PROTOCOLS, CURLPROTO_DICT);
            }
            return 0;
        };
        curl_setopt($curl, CURLOPT_NOPROGRESS, false);
        // PHP has the current name of the option from 8.2 on.
        curl_setopt($curl, defined('CURLOPT_XFERINFOFUNCTION') ? CURLOPT_XFERINFOFUNCTION : CURLOPT_PROGRESSFUNCTION, $progress);
    }

    /** @return list<string> */
    private static function headers(#[\SensitiveParameter] RequestInterface $request): array
    {
        // Without a value curl leaves its own headers out: no form's type, and no waiting for 100 Continue.
        $lines = ['Expect:'];
        if (!$request->hasHeader('Content-Type')) {
            $lines[] = 'Content-Type:';
        }
        foreach ($request->getHeaders() as $name => $values) {
            foreach ($values as $value) {
                $lines[] = $value === '' ? "$name;" : "$name: $value";
            }
        }
        return $lines;
    }

    /** @return array<int, mixed> */
    private static function method(#[\SensitiveParameter] RequestInterface $request): array
    {
        $method = $request->getMethod();
        $body = (string) $request->getBody();
        if ($body === '' && $method !== 'POST') {
            return $method === 'GET' ? [CURLOPT_HTTPGET => true] : [CURLOPT_CUSTOMREQUEST => $method];
        }
        return [CURLOPT_CUSTOMREQUEST => $method, CURLOPT_POSTFIELDS => $body];
    }

    public function __clone()
    {
        $this->handle = null;
    }

    public function __debugInfo(): array
    {
        return ['timeout' => $this->timeout, 'connectTimeout' => $this->connectTimeout];
    }
}
