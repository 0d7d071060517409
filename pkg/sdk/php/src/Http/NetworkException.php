<?php

declare(strict_types=1);

namespace ApiPay\Http;

use ApiPay\Hidden;
use ApiPay\TransportFailure;
use Psr\Http\Client\NetworkExceptionInterface;
use Psr\Http\Message\RequestInterface;

/** No complete answer. It does not say whether the request arrived. */
final class NetworkException extends \RuntimeException implements NetworkExceptionInterface
{
    private readonly Hidden $request;

    /** @internal */
    public function __construct(#[\SensitiveParameter] RequestInterface $request, TransportFailure $failure)
    {
        $this->request = new Hidden($request); // it has the API key
        parent::__construct($failure->getMessage(), 0, $failure);
        TransportFailure::stripArguments($this);
    }

    public function getRequest(): RequestInterface
    {
        return $this->request->value();
    }
}
