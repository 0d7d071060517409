package io.apipay;

import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;

/** The calls about events; they are kept for 30 days; each begins at once and gives a future. */
public final class EventsAsync {
    private final Core core;

    EventsAsync(Core core) {
        this.core = core;
    }

    /**
     * Reads an event.
     *
     * @param id the object's id
     * @return the answer, when it is there
     */
    public CompletableFuture<Event> get(String id) {
        return get(id, RequestOptions.NONE);
    }

    /**
     * Reads an event.
     *
     * @param id the object's id
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Event> get(String id, RequestOptions options) {
        return core.start("GET", Core.parts("events", id), null, Event::new, options);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<Event>> list(EventListParams params) {
        return list(params, RequestOptions.NONE);
    }

    /**
     * Reads one page.
     *
     * @param params the parameters
     * @param options options of this call
     * @return the answer, when it is there
     */
    public CompletableFuture<Page<Event>> list(EventListParams params, RequestOptions options) {
        return core.start("GET", Core.parts("events"), params, members -> new Page<>(members, Event::new), options);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(EventListParams params, Predicate<? super Event> each) {
        return all(params, each, RequestOptions.NONE);
    }

    /**
     * Walks over every page.
     *
     * @param params the parameters
     * @param each gets each object, and says if it goes on
     * @param options options of this call
     * @return completes after the last object
     */
    public CompletableFuture<Void> all(EventListParams params, Predicate<? super Event> each, RequestOptions options) {
        return Pages.forEach(core, Core.parts("events"), params, Event::new, options, each);
    }
}
