<?php

declare(strict_types=1);

namespace ApiPay;

/** The calls about events; they are kept for 30 days. */
final class Events extends Service
{
    /** Reads an event. */
    public function get(string $id, ?RequestOptions $options = null): Event
    {
        return $this->one('GET', ['events', $id], null, Event::class, $options);
    }

    /**
     * Reads one page.
     *
     * @param array{limit?: int, cursor?: string, type?: string} $params
     * @return Page<Event>
     */
    public function list(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): Page
    {
        return $this->page(['events'], $params, Event::class, $options);
    }

    /**
     * Walks over every page.
     *
     * @param array{limit?: int, cursor?: string, type?: string} $params
     * @return \Generator<int, Event>
     */
    public function all(#[\SensitiveParameter] array $params = [], ?RequestOptions $options = null): \Generator
    {
        return $this->pages(['events'], $params, Event::class, $options);
    }
}
