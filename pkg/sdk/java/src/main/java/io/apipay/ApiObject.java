package io.apipay;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;

/** An object of the API. Members that this version does not know are in {@link #members}. */
public abstract class ApiObject {
    private final Map<String, Object> members;
    private volatile ApiResponse response;

    ApiObject(Map<String, Object> members) {
        this.members = members;
    }

    /**
     * All members as they came: texts, booleans, nulls, lists, maps, and numbers as Long, BigInteger or BigDecimal.
     *
     * @return the members
     */
    public final Map<String, Object> members() {
        return members;
    }

    /**
     * The object as JSON, as it came. A signing secret is in it.
     *
     * @return the JSON
     */
    public final String toJson() {
        return Json.write(members);
    }

    /**
     * What the call was answered with, if the object is a call's result.
     *
     * @return the answer's status and ids
     */
    public final Optional<ApiResponse> response() {
        return Optional.ofNullable(response);
    }

    final void answeredBy(ApiResponse answer) {
        response = answer;
    }

    @Override
    public final boolean equals(Object other) {
        return other != null && other.getClass() == getClass() && ((ApiObject) other).members.equals(members);
    }

    @Override
    public final int hashCode() {
        return members.hashCode();
    }

    /** Prints type and id; a log is no place for a customer's data. */
    @Override
    public String toString() {
        return getClass().getSimpleName() + "{id=" + members.get("id") + "}";
    }

    final String text(String name) {
        return typed(name, String.class);
    }

    /** The text without which it is no object of the API. */
    final String requiredText(String name) {
        String value = text(name);
        if (value == null) {
            throw new InvalidMemberException(name);
        }
        return value;
    }

    /** A missing number is 0. */
    final long integer(String name) {
        Long value = integerOrNull(name);
        return value == null ? 0 : value;
    }

    final Long integerOrNull(String name) {
        return typed(name, Long.class); // a BigInteger, beyond 64 bits, is refused and never cut
    }

    final boolean bool(String name) {
        return Boolean.TRUE.equals(typed(name, Boolean.class));
    }

    /** Metadata: texts by name. */
    final Map<String, String> texts(String name) {
        Map<String, String> texts = new LinkedHashMap<>();
        Map<String, Object> map = objectOrNull(name);
        if (map != null) {
            map.forEach((key, value) -> {
                if (!(value instanceof String text)) {
                    throw new InvalidMemberException(name);
                }
                texts.put(key, text);
            });
        }
        return Collections.unmodifiableMap(texts);
    }

    final List<String> textList(String name) {
        List<String> texts = new ArrayList<>();
        for (Object item : list(name)) {
            if (!(item instanceof String text)) {
                throw new InvalidMemberException(name);
            }
            texts.add(text);
        }
        return List.copyOf(texts);
    }

    final <T> List<T> objects(String name, Function<Map<String, Object>, T> reader) {
        List<T> objects = new ArrayList<>();
        for (Object item : list(name)) {
            Map<String, Object> map = Json.object(item);
            if (map == null) {
                throw new InvalidMemberException(name);
            }
            objects.add(reader.apply(map));
        }
        return List.copyOf(objects);
    }

    final <T> T objectOrNull(String name, Function<Map<String, Object>, T> reader) {
        Map<String, Object> map = objectOrNull(name);
        return map == null ? null : reader.apply(map);
    }

    final Map<String, Object> objectOrNull(String name) {
        Map<String, Object> map = Json.object(members.get(name));
        if (map == null && members.get(name) != null) {
            throw new InvalidMemberException(name);
        }
        return map;
    }

    private List<?> list(String name) {
        List<?> list = typed(name, List.class);
        return list == null ? List.of() : list;
    }

    private <T> T typed(String name, Class<T> type) {
        Object value = members.get(name);
        if (value != null && !type.isInstance(value)) {
            throw new InvalidMemberException(name);
        }
        return type.cast(value);
    }

    /** A member has another type than the API says. */
    static final class InvalidMemberException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        InvalidMemberException(String name) {
            super("the member " + name + " has an unexpected type");
        }
    }
}
