package io.apipay;

import io.apipay.ApiPayException.Kind;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Clock;
import java.time.Duration;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.function.DoubleSupplier;
import java.util.function.Function;
import java.util.function.Supplier;

/** What the services share: it turns a call's parameters into a request, and waits for calls on behalf of the synchronous ones. */
final class Core {
    static final String VERSION = "1.0.0";
    private static final SecureRandom KEYS = new SecureRandom();
    /** Where calls go on after a wait for the network: threads of its own, since a blocked common pool would block all calls. */
    static final Executor EXECUTOR = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "apipay");
        thread.setDaemon(true);
        return thread;
    });

    final Transport transport;
    final Duration timeout;
    final int maxRetries;
    final Clock clock;
    final Sleeper sleeper;
    final DoubleSupplier random;

    private final String baseUrl;
    private final Supplier<String> authorization;

    Core(ApiPay.Builder b, Transport transport) {
        this.transport = transport;
        baseUrl = b.baseUrl;
        authorization = b.authorization;
        timeout = b.timeout;
        maxRetries = b.maxRetries;
        clock = b.clock;
        sleeper = b.sleeper;
        random = b.random;
    }

    String baseUrl() {
        return baseUrl;
    }

    /** Begins a call. A refusal is a failed future. */
    <T> CompletableFuture<T> start(String method, String[] path, Params params, Function<Map<String, Object>, T> reader,
            RequestOptions options) {
        try {
            return prepare(method, path, params, reader, options).start();
        } catch (ApiPayException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    /** Makes a call and waits for it. An interrupt ends it, and the thread's interrupt flag stays set. */
    <T> T call(String method, String[] path, Params params, Function<Map<String, Object>, T> reader, RequestOptions options) {
        Call<T> call = prepare(method, path, params, reader, options);
        if (Thread.currentThread().isInterrupted()) {
            throw call.canceled(new InterruptedException("the thread was interrupted before the call"));
        }
        try {
            return call.start().get();
        } catch (InterruptedException e) {
            ApiPayException canceled = call.canceled(e);
            call.cancel(true);
            Thread.currentThread().interrupt();
            throw canceled;
        } catch (ExecutionException | CancellationException e) {
            throw thrown(e);
        }
    }

    private static RuntimeException thrown(Exception e) {
        ApiPayException known = ApiPayException.of(e).orElse(null);
        if (known == null) {
            return new IllegalStateException("apipay: a call failed in an unexpected way", e);
        }
        known.fillInStackTrace(); // that of the caller, in place of that of a thread of the pool
        return known;
    }

    private <T> Call<T> prepare(String method, String[] path, Params params, Function<Map<String, Object>, T> reader,
            RequestOptions options) {
        options.check();
        boolean query = method.equals("GET");
        URI uri = URI.create(baseUrl + "/v1" + path(path) + (query && params != null ? query(params.members()) : ""));
        byte[] body = null;
        if (!query && params != null) {
            try {
                body = Json.writeBytes(params.members());
            } catch (CharacterCodingException | IllegalArgumentException e) {
                throw ApiPayException.refusal("the parameters cannot be written as JSON");
            }
        }
        String key = null;
        if (method.equals("POST")) {
            key = options.idempotencyKey() == null ? newKey() : options.idempotencyKey();
        }
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("Accept", "application/json, application/problem+json");
        headers.put("User-Agent", "apipay-java/" + VERSION + " (Java " + System.getProperty("java.version") + ")");
        options.headers().forEach((name, value) -> {
            headers.keySet().removeIf(name::equalsIgnoreCase);
            headers.put(name, value);
        });
        headers.put("Authorization", authorization.get());
        if (body != null) {
            headers.put("Content-Type", "application/json");
        }
        if (key != null) {
            headers.put("Idempotency-Key", key);
        }
        return new Call<>(this, new Transport.Request(method, uri, headers, body), reader, key, options);
    }

    private static String query(Map<String, Object> members) {
        StringJoiner query = new StringJoiner("&", "?", "").setEmptyValue("");
        members.forEach((name, value) -> query.add(encode(name) + "=" + encode(value.toString())));
        return query.toString();
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    /** Every second part is an id; with any other character an id could change the path. */
    private static String path(String[] parts) {
        StringBuilder path = new StringBuilder();
        for (int i = 0; i < parts.length; i++) {
            if (i % 2 == 1 && (parts[i] == null || !parts[i].matches("[A-Za-z0-9_-]+"))) {
                throw ApiPayException.refusal("that is not an id");
            }
            path.append('/').append(parts[i]);
        }
        return path.toString();
    }

    /** For calls without a result. */
    static <T> Function<Map<String, Object>, T> noReader() {
        return null;
    }

    /** Names the parts of a path, names and ids in turn. */
    static String[] parts(String... parts) {
        return parts;
    }

    static ApiPayException invalidPage() {
        ApiPayException.Builder b = new ApiPayException.Builder().of(Kind.DECODE, ErrorCode.INVALID_RESPONSE,
                new IllegalStateException("the list has more, but its cursor is missing or was there before"));
        b.status = 200;
        b.attempts = 1;
        return b.build();
    }

    /** A random UUID v4. */
    private static String newKey() {
        byte[] b = new byte[16];
        KEYS.nextBytes(b);
        b[6] = (byte) (b[6] & 0x0f | 0x40);
        b[8] = (byte) (b[8] & 0x3f | 0x80);
        String hex = HexFormat.of().formatHex(b);
        return String.join("-", hex.substring(0, 8), hex.substring(8, 12), hex.substring(12, 16), hex.substring(16, 20),
                hex.substring(20));
    }
}
