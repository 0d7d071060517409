package io.apipay;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A call's parameters. What is not set is not sent. */
public abstract class Params {
    private final Map<String, Object> members = new LinkedHashMap<>();

    Params() {}

    final void set(String name, Object value) {
        if (value == null) {
            members.remove(name);
        } else if (value instanceof Map<?, ?> map) {
            members.put(name, new LinkedHashMap<>(map)); // may hold what is refused later, so no Map.copyOf
        } else if (value instanceof List<?> list) {
            members.put(name, new ArrayList<>(list));
        } else {
            members.put(name, value);
        }
    }

    final Map<String, Object> members() {
        return members;
    }

    /** Params that are null or empty: no body. */
    static Params orNone(Params params) {
        return params == null || params.members.isEmpty() ? null : params;
    }

    /** Prints nothing that you wrote. */
    @Override
    public String toString() {
        return getClass().getSimpleName() + "{}";
    }
}
