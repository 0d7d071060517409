package io.apipay;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Options of one call. Immutable: each method gives changed options. What is refused fails the call, before it is sent. */
public final class RequestOptions {
    /** No options. */
    public static final RequestOptions NONE = new RequestOptions(null, null, null, Map.of());

    private static final Set<String> RESERVED = Set.of("authorization", "idempotency-key", "host", "content-length",
            "content-type", "transfer-encoding", "connection", "trailer", "expect", "upgrade");

    private final String idempotencyKey;
    private final Duration timeout;
    private final Duration deadline;
    private final Map<String, String> headers;

    private RequestOptions(String idempotencyKey, Duration timeout, Duration deadline, Map<String, String> headers) {
        this.idempotencyKey = idempotencyKey;
        this.timeout = timeout;
        this.deadline = deadline;
        this.headers = headers;
    }

    /**
     * Sets the key of a POST: 1 to 255 visible ASCII characters, sent as it is. Without it each call gets a new UUID v4. After
     * an error, call again with {@link ApiPayException#idempotencyKey}.
     *
     * @param key the key
     * @return the options
     */
    public RequestOptions idempotencyKey(String key) {
        return new RequestOptions(key, timeout, deadline, headers);
    }

    /**
     * Limits each attempt, in place of the client's timeout.
     *
     * @param limit the limit
     * @return the options
     */
    public RequestOptions timeout(Duration limit) {
        return new RequestOptions(idempotencyKey, limit, deadline, headers);
    }

    /**
     * Limits the call as a whole, waits included.
     *
     * @param limit the limit, from when the call is made
     * @return the options
     */
    public RequestOptions deadline(Duration limit) {
        return new RequestOptions(idempotencyKey, timeout, limit, headers);
    }

    /**
     * Adds a header. The SDK's own headers cannot be set.
     *
     * @param name the header's name
     * @param value the header's value
     * @return the options
     */
    public RequestOptions header(String name, String value) {
        Map<String, String> all = new LinkedHashMap<>(headers);
        all.put(name, value);
        return new RequestOptions(idempotencyKey, timeout, deadline, all);
    }

    String idempotencyKey() {
        return idempotencyKey;
    }

    Duration timeout() {
        return timeout;
    }

    Duration deadline() {
        return deadline;
    }

    Map<String, String> headers() {
        return headers;
    }

    /** Throws a refusal if the options cannot be used. */
    void check() {
        if (idempotencyKey != null && (idempotencyKey.length() > 255 || !visibleAscii(idempotencyKey))) {
            throw ApiPayException.refusal("an idempotency key has 1 to 255 visible ASCII characters");
        }
        if (timeout != null && (timeout.isZero() || timeout.isNegative())) {
            throw ApiPayException.refusal("a timeout must be positive");
        }
        headers.forEach((name, value) -> {
            if (name == null || !name.matches("[!#$%&'*+.^_`|~0-9A-Za-z-]+")) {
                throw ApiPayException.refusal("that is not a header's name");
            }
            if (RESERVED.contains(name.toLowerCase(Locale.ROOT))) {
                throw ApiPayException.refusal("the SDK sets " + name.toLowerCase(Locale.ROOT) + " itself");
            }
            if (value == null || value.chars().anyMatch(c -> (c < 0x20 && c != '\t') || c > 0x7e)) {
                throw ApiPayException.refusal("a header's value is printable ASCII, without line breaks");
            }
        });
    }

    static boolean visibleAscii(String text) {
        return !text.isEmpty() && text.chars().allMatch(c -> c > 0x20 && c < 0x7f);
    }

    @Override
    public String toString() {
        return "RequestOptions{}";
    }
}
