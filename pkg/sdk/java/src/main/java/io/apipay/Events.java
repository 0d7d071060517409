package io.apipay;

/** The calls about events; they are kept for 30 days. */
public final class Events {
    private final Core core;

    Events(Core core) {
        this.core = core;
    }

    /**
     * Reads an event.
     *
     * @param id the object's id
     * @return the answer
     */
    public Event get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads an event.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer
     */
    public Event get(String id, RequestOptions options) {
        return core.call("GET", Core.parts("events", id), null, Event::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer
     */
    public Page<Event> list(EventListParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer
     */
    public Page<Event> list(EventListParams params, RequestOptions options) {
        return core.call("GET", Core.parts("events"), params, members -> new Page<>(members, Event::new), options);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<Event> all(EventListParams params) {
        return all(params, RequestOptions.NONE);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the objects, fetched page by page; leaving the loop fetches nothing more
     */
    public Pages<Event> all(EventListParams params, RequestOptions options) {
        return new Pages<>(core, Core.parts("events"), params, Event::new, options);
    }
}
