<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * One page of a list, newest first.
 *
 * @template T of ApiObject
 */
final class Page extends ApiObject
{
    /** @var list<T> */
    public readonly array $data;
    public readonly bool $hasMore;
    /** The cursor of the next page; null on the last one. */
    public readonly ?string $nextCursor;

    /**
     * @internal
     * @param callable(\stdClass): T $reader
     */
    public function __construct(#[\SensitiveParameter] \stdClass $members, callable $reader)
    {
        $list = clone $members;
        $this->data = self::read($list, $reader);
        parent::__construct($list);
        $this->hasMore = $this->bool('has_more');
        $this->nextCursor = $this->text('next_cursor');
    }

    /** Reads the page's objects, and puts what they say of themselves in the members: an endpoint hides its secret. */
    private static function read(\stdClass $list, callable $reader): array
    {
        $data = [];
        $items = $list->data ?? [];
        if (!is_array($items)) {
            throw new InvalidMember('data');
        }
        foreach ($items as $item) {
            if (!$item instanceof \stdClass) {
                throw new InvalidMember('data');
            }
            $data[] = $reader($item);
        }
        if (isset($list->data)) {
            $list->data = $data;
        }
        return $data;
    }
}
