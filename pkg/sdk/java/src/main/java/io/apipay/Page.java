package io.apipay;

import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * One page of a list, newest first.
 *
 * @param <T> what is listed
 */
public final class Page<T> extends ApiObject {
    private final List<T> data;
    private final boolean hasMore;
    private final String nextCursor;

    Page(Map<String, Object> members, Function<Map<String, Object>, T> reader) {
        super(members);
        data = objects("data", reader);
        hasMore = bool("has_more");
        nextCursor = text("next_cursor");
    }

    /**
     * The page's objects.
     *
     * @return the objects
     */
    public List<T> data() {
        return data;
    }

    /**
     * Says if there is a next page.
     *
     * @return true if there is one
     */
    public boolean hasMore() {
        return hasMore;
    }

    /**
     * The cursor of the next page.
     *
     * @return the cursor, or null on the last page
     */
    public String nextCursor() {
        return nextCursor;
    }

    @Override
    public String toString() {
        return "Page{" + data + "}";
    }
}
