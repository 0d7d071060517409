<?php

declare(strict_types=1);

namespace ApiPay;

/**
 * What the services share.
 *
 * @internal
 */
abstract class Service
{
    public function __construct(protected readonly Core $core)
    {
    }

    /**
     * @template T of ApiObject
     * @param list<string> $path names and ids in turn
     * @param class-string<T> $class
     * @return T
     */
    protected function one(string $method, array $path, #[\SensitiveParameter] ?array $params, string $class, ?RequestOptions $options): ApiObject
    {
        return $this->core->call($method, $path, $params, static fn (\stdClass $members): ApiObject => new $class($members), $options);
    }

    /**
     * @template T of ApiObject
     * @param class-string<T> $class
     * @return Page<T>
     */
    protected function page(array $path, array $params, string $class, ?RequestOptions $options): Page
    {
        $reader = static fn (\stdClass $members): ApiObject => new $class($members);
        return $this->core->call('GET', $path, $params, static fn (\stdClass $members): Page => new Page($members, $reader), $options);
    }

    /**
     * Walks over every page. Each page is a call of its own, retried alone; leaving the loop fetches nothing more.
     *
     * @template T of ApiObject
     * @param class-string<T> $class
     * @return \Generator<int, T>
     */
    protected function pages(array $path, array $params, string $class, ?RequestOptions $options): \Generator
    {
        $seen = [$params['cursor'] ?? '' => true];
        while (true) {
            $page = $this->page($path, $params, $class, $options);
            foreach ($page->data as $object) {
                yield $object;
            }
            if (!$page->hasMore) {
                return;
            }
            if ($page->nextCursor === null || isset($seen[$page->nextCursor])) {
                throw new ApiPayException(ErrorKind::Decode, ErrorCode::INVALID_RESPONSE, status: 200, attempts: 1,
                    previous: new TransportFailure('the list has more, but its cursor is missing or was there before'));
            }
            $params['cursor'] = $page->nextCursor;
            $seen[$page->nextCursor] = true;
        }
    }

    public function __debugInfo(): array
    {
        return [];
    }
}
