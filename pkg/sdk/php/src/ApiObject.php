<?php

declare(strict_types=1);

namespace ApiPay;

/** An object of the API. Members that this version does not know are in members(). Its JSON form is the object as it came. */
abstract class ApiObject implements \JsonSerializable
{
    private ?ApiResponse $response = null;

    /** @internal */
    public function __construct(private readonly \stdClass $members)
    {
    }

    /** All members as they came, unknown ones included. An integer beyond 64 bits is its digits, as text. */
    final public function members(): \stdClass
    {
        return $this->members;
    }

    /** What the call was answered with, if the object is a call's result. */
    final public function response(): ?ApiResponse
    {
        return $this->response;
    }

    /** @internal */
    final public function answeredBy(ApiResponse $response): static
    {
        $this->response = $response;
        return $this;
    }

    final public function jsonSerialize(): \stdClass
    {
        return $this->members;
    }

    final protected function text(string $name): ?string
    {
        return $this->typed($name, is_string(...));
    }

    /** The text without which it is no object of the API. */
    final protected function requiredText(string $name): string
    {
        return $this->text($name) ?? throw new InvalidMember($name);
    }

    /** A missing number is 0. */
    final protected function integer(string $name): int
    {
        return $this->integerOrNull($name) ?? 0;
    }

    /** A float, or a number beyond 64 bits, which json_decode gives as text, is refused and never rounded. */
    final protected function integerOrNull(string $name): ?int
    {
        return $this->typed($name, is_int(...));
    }

    final protected function bool(string $name): bool
    {
        return $this->typed($name, is_bool(...)) ?? false;
    }

    /** @return array<string, string> */
    final protected function texts(string $name): array
    {
        return $this->allTexts($name, (array) ($this->object($name) ?? []));
    }

    /** @return list<string> */
    final protected function textList(string $name): array
    {
        return array_values($this->allTexts($name, $this->typed($name, is_array(...)) ?? []));
    }

    final protected function object(string $name): ?\stdClass
    {
        return $this->typed($name, static fn (mixed $value): bool => $value instanceof \stdClass);
    }

    /**
     * @template T of object
     * @param callable(\stdClass): T $reader
     * @return list<T>
     */
    final protected function objects(string $name, callable $reader): array
    {
        $objects = [];
        foreach ($this->typed($name, is_array(...)) ?? [] as $item) {
            if (!$item instanceof \stdClass) {
                throw new InvalidMember($name);
            }
            $objects[] = $reader($item);
        }
        return $objects;
    }

    private function allTexts(string $name, array $values): array
    {
        foreach ($values as $value) {
            if (!is_string($value)) {
                throw new InvalidMember($name);
            }
        }
        return $values;
    }

    private function typed(string $name, callable $is): mixed
    {
        $value = $this->members->{$name} ?? null;
        if ($value !== null && !$is($value)) {
            throw new InvalidMember($name);
        }
        return $value;
    }
}
