package io.apipay;

import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Every object of a list, fetched page by page while it is walked over. Each page is a call of its own, retried alone; an error
 * ends the walk with an {@link ApiPayException}. Each iterator begins anew.
 *
 * @param <T> what is listed
 */
public final class Pages<T> implements Iterable<T> {
    private final Core core;
    private final String[] path;
    private final Params params;
    private final Function<Map<String, Object>, T> reader;
    private final RequestOptions options;

    Pages(Core core, String[] path, Params params, Function<Map<String, Object>, T> reader, RequestOptions options) {
        this.core = core;
        this.path = path;
        this.params = params;
        this.reader = reader;
        this.options = options;
    }

    /**
     * The same as a stream.
     *
     * @return a sequential stream
     */
    public Stream<T> stream() {
        return StreamSupport.stream(spliterator(), false);
    }

    @Override
    public Iterator<T> iterator() {
        return new Iterator<>() {
            private final Walk walk = new Walk(params);
            private Iterator<T> page = List.<T>of().iterator();

            @Override
            public boolean hasNext() {
                while (!page.hasNext() && walk.hasNext()) {
                    Page<T> next = core.call("GET", path, walk.next(), members -> new Page<>(members, reader), options);
                    page = next.data().iterator();
                    walk.after(next);
                }
                if (!page.hasNext()) {
                    walk.check();
                    return false;
                }
                return true;
            }

            @Override
            public T next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                return page.next();
            }
        };
    }

    /** The asynchronous walk: each gets every object, and says if it goes on. */
    static <T> CompletableFuture<Void> forEach(Core core, String[] path, Params params,
            Function<Map<String, Object>, T> reader, RequestOptions options, Predicate<? super T> each) {
        AsyncWalk<T> walk = new AsyncWalk<>(core, path, new Walk(params), reader, options, each);
        walk.fetch();
        return walk;
    }

    /** The walk's place. An invalid page is an error after its objects were given. */
    private static final class Walk {
        private final Map<String, Object> members = new LinkedHashMap<>();
        private final Set<Object> seen = new HashSet<>();
        private boolean more = true;
        private boolean invalid;

        Walk(Params params) {
            if (params != null) {
                members.putAll(params.members());
            }
            seen.add(members.get("cursor"));
        }

        boolean hasNext() {
            return more;
        }

        Params next() {
            Params params = new PageParams();
            members.forEach(params::set);
            return params;
        }

        void after(Page<?> page) {
            more = page.hasMore() && page.nextCursor() != null && seen.add(page.nextCursor());
            invalid = page.hasMore() && !more;
            members.put("cursor", page.nextCursor());
        }

        void check() {
            if (invalid) {
                throw Core.invalidPage();
            }
        }
    }

    /** Canceled, it cancels the call for the page that is being fetched. */
    private static final class AsyncWalk<T> extends CompletableFuture<Void> {
        private final Core core;
        private final String[] path;
        private final Walk walk;
        private final Function<Map<String, Object>, T> reader;
        private final RequestOptions options;
        private final Predicate<? super T> each;
        private volatile CompletableFuture<Page<T>> call;

        AsyncWalk(Core core, String[] path, Walk walk, Function<Map<String, Object>, T> reader, RequestOptions options,
                Predicate<? super T> each) {
            this.core = core;
            this.path = path;
            this.walk = walk;
            this.reader = reader;
            this.options = options;
            this.each = each;
        }

        void fetch() {
            call = core.start("GET", path, walk.next(), members -> new Page<>(members, reader), options);
            call.whenComplete((page, failure) -> {
                try {
                    took(page, failure);
                } catch (RuntimeException e) { // of each
                    completeExceptionally(e);
                }
            });
        }

        private void took(Page<T> page, Throwable failure) {
            if (failure != null) {
                completeExceptionally(failure);
                return;
            }
            for (T item : page.data()) {
                if (isDone() || !each.test(item)) {
                    complete(null);
                    return;
                }
            }
            walk.after(page);
            walk.check();
            if (walk.hasNext() && !isDone()) {
                fetch();
            } else {
                complete(null);
            }
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            call.cancel(mayInterruptIfRunning);
            return super.cancel(mayInterruptIfRunning) || isCancelled();
        }

        @Override
        public <U> CompletableFuture<U> newIncompleteFuture() {
            return new CompletableFuture<>();
        }
    }
}
