<?php

/* Checks the client with another PSR-18 client. The vectors run with the SDK's own. */

declare(strict_types=1);

use ApiPay\ApiPayException;
use ApiPay\Client;
use ApiPay\ErrorKind;
use Nyholm\Psr7\Response;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Client\NetworkExceptionInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

require __DIR__ . '/../autoload.php';

/** Answers what it was given, and keeps the requests. */
final class Scripted implements ClientInterface
{
    /** @var list<RequestInterface> */
    public array $requests = [];

    /** @param list<int> $statuses 0 for no answer */
    public function __construct(private array $statuses)
    {
    }

    public function sendRequest(RequestInterface $request): ResponseInterface
    {
        $this->requests[] = $request;
        $status = array_shift($this->statuses);
        if ($status === 0) {
            throw new class ($request) extends RuntimeException implements NetworkExceptionInterface {
                public function __construct(private RequestInterface $request)
                {
                    parent::__construct('sending ' . $request->getHeaderLine('Authorization'));
                }

                public function getRequest(): RequestInterface
                {
                    return $this->request;
                }
            };
        }
        return new Response((int) $status, ['X-Request-Id' => 'req_1'], '{"id":"pi_1","amount":1000,"code":"internal_error"}');
    }
}

function client(Scripted $http): Client
{
    return new Client('apk_test_KEYMARKER', httpClient: $http, sleeper: static fn (float $seconds) => null);
}

function check(bool $holds, string $what): void
{
    if (!$holds) {
        fwrite(STDERR, "tests/psr18.php: $what\n");
        exit(1);
    }
}

function failure(Closure $call): ApiPayException
{
    try {
        $call();
    } catch (ApiPayException $e) {
        return $e;
    }
    check(false, 'the call had to fail');
}

$http = new Scripted([500, 200]);
check(client($http)->paymentIntents->get('pi_1')->amount === 1000, 'a GET is repeated after a 500');
check(count($http->requests) === 2, 'with two requests');
check($http->requests[0]->getHeaderLine('Connection') === 'close', 'no connection may be kept');

$http = new Scripted([0, 200]);
$e = failure(static fn () => client($http)->paymentIntents->get('pi_1'));
check($e->kind === ErrorKind::Connection && count($http->requests) === 1, 'a GET without an answer is not repeated');

foreach ([0, 429, 503] as $status) {
    $http = new Scripted([$status, 200]);
    $e = failure(static fn () => client($http)->paymentIntents->create(['amount' => 1000, 'currency' => 'EUR']));
    check(count($http->requests) === 1, "a POST is sent once: $status");
    check($e->idempotencyKey === $http->requests[0]->getHeaderLine('Idempotency-Key'), 'the error has the key');
    ob_start();
    var_dump($e, $e->getPrevious());
    $printed = ob_get_clean() . print_r($e, true) . var_export($e, true) . $e;
    check(!str_contains($printed, 'KEYMARKER'), "no printed form has the API key: $status");
}

$e = failure(static fn () => client(new Scripted([]))->paymentIntents->create(['amount' => 19.99 * 100, 'currency' => 'EUR']));
check($e->kind === ErrorKind::Argument, 'an amount that is no integer is refused');
