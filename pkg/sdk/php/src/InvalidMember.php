<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * A member has another type than the API says.
 *
 * @internal
 */
final class InvalidMember extends \UnexpectedValueException
{
    public function __construct(string $name)
    {
        parent::__construct("the member $name has an unexpected type");
    }
}
