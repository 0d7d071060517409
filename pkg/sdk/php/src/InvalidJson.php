<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * Something is not the JSON that is due. Its text never quotes it.
 *
 * @internal
 */
final class InvalidJson extends \UnexpectedValueException
{
}
