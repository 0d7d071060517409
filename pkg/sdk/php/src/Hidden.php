<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * Holds a value that no printed form shows: not var_dump, print_r, var_export, a cast to array, or JSON.
 *
 * @internal
 */
final class Hidden
{
    /** @var \WeakMap<self, mixed>|null values are kept beside the objects, since var_export prints every property */
    private static ?\WeakMap $values = null;

    public function __construct(#[\SensitiveParameter] mixed $value)
    {
        self::$values ??= new \WeakMap();
        self::$values[$this] = $value;
    }

    public function value(): mixed
    {
        return self::$values[$this] ?? null;
    }

    public function __serialize(): array
    {
        return [];
    }

    public function __unserialize(array $data): void
    {
    }

    public function __clone()
    {
        throw new \LogicException('a hidden value is not copied');
    }
}
