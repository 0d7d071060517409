package io.apipay;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.DoubleSupplier;

/**
 * The Java SDK's runner of the vectors in pkg/sdk/conformance: one job per line on stdin, one answer per line on stdout. The
 * protocol is described there. The argument is {@code sync} or {@code async}. It is in the SDK's package to reach the function
 * that computes waits.
 */
final class Runner {
    private static final ScheduledExecutorService TIMER = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "cancel");
        thread.setDaemon(true);
        return thread;
    });

    private final boolean async;
    private final List<Object> sleeps = new ArrayList<>();
    private final List<String> keys = new ArrayList<>(); // of the errors of earlier steps
    private final ApiPay client;
    private final Clock clock;
    private final DoubleSupplier random;

    private Runner(Map<String, Object> options, boolean async) {
        this.async = async;
        clock = Clock.fixed(Instant.ofEpochMilli(number(options, "clock_ms", 0)), ZoneOffset.UTC);
        boolean real = "real".equals(options.get("sleeper"));
        ApiPay.Builder builder = ApiPay.builder((String) options.get("api_key"))
                .baseUrl((String) options.get("base_url"))
                .clock(clock)
                .sleeper(wait -> {
                    synchronized (sleeps) {
                        sleeps.add(wait.toNanos() / 1e6);
                    }
                    return real ? Sleeper.DEFAULT.sleep(wait) : CompletableFuture.completedFuture(null);
                });
        random = options.get("random") instanceof List<?> given && !given.isEmpty() ? inTurn(given) : ApiPay.Builder.RANDOM;
        builder.random(random);
        if (options.containsKey("timeout_ms")) {
            builder.timeout(Duration.ofMillis(number(options, "timeout_ms", 0)));
        }
        if (options.containsKey("connect_timeout_ms")) {
            builder.connectTimeout(Duration.ofMillis(number(options, "connect_timeout_ms", 0)));
        }
        if (options.containsKey("max_retries")) {
            builder.maxRetries((int) number(options, "max_retries", 0));
        }
        client = builder.build();
    }

    public static void main(String[] arguments) throws Exception {
        boolean async = arguments.length > 0 && arguments[0].equals("async");
        Warmup.run();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> job = Json.readObject(line.getBytes(StandardCharsets.UTF_8));
            Runner runner = new Runner(Json.object(job.get("client")), async);
            List<Object> results = new ArrayList<>();
            for (Object step : (List<?>) job.get("steps")) {
                results.add(runner.step(Json.object(step)));
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("vector", job.get("vector"));
            answer.put("steps", results);
            out.println(Json.write(answer));
            out.flush();
        }
    }

    private Map<String, Object> step(Map<String, Object> step) {
        synchronized (sleeps) {
            sleeps.clear();
        }
        Map<String, Object> arguments = step.get("args") == null ? Map.of() : Json.object(step.get("args"));
        List<Object> ids = new ArrayList<>();
        Methods methods = new Methods(client, clock, random, arguments, ids, options(step));
        Object value = null;
        Throwable failure = null;
        AtomicLong canceledAt = new AtomicLong();
        Future<?> cancel = null;
        long started = System.nanoTime();
        try {
            if (async) {
                CompletableFuture<?> future = methods.async((String) step.get("method"));
                cancel = schedule(step, () -> {
                    canceledAt.set(System.nanoTime());
                    future.cancel(true);
                });
                value = future.get();
            } else {
                Thread caller = Thread.currentThread();
                cancel = schedule(step, () -> {
                    canceledAt.set(System.nanoTime());
                    caller.interrupt();
                });
                value = methods.sync((String) step.get("method"));
            }
        } catch (Exception e) {
            failure = e;
        }
        long returned = System.nanoTime();
        if (cancel != null) {
            cancel.cancel(false);
        }
        boolean interrupted = Thread.interrupted();

        Map<String, Object> result = new LinkedHashMap<>();
        String key = null;
        if (failure == null) {
            result.put("ok", Results.plain(value));
        } else {
            Map<String, Object> error = Results.error(failure);
            if ("canceled".equals(error.get("kind")) && !async && !interrupted) {
                error.put("kind", "interrupt_flag_lost");
            }
            result.put("error", error);
            result.put("ids", ids);
            key = (String) error.get("idempotency_key");
        }
        keys.add(key);
        synchronized (sleeps) {
            result.put("sleeps_ms", new ArrayList<>(sleeps));
        }
        result.put("elapsed_ms", (returned - started) / 1e6);
        if (canceledAt.get() != 0) {
            result.put("cancel_latency_ms", Math.max(0, (returned - canceledAt.get()) / 1e6));
        }
        if (Boolean.TRUE.equals(step.get("print"))) {
            result.put("printed", failure != null ? Results.printed(failure) : Results.printed(value == null ? client : value));
        }
        return result;
    }

    private static Future<?> schedule(Map<String, Object> step, Runnable cancel) {
        if (!step.containsKey("cancel_after_ms")) {
            return null;
        }
        long after = number(step, "cancel_after_ms", 0);
        if (after == 0) {
            cancel.run();
            return null;
        }
        return TIMER.schedule(cancel, after, TimeUnit.MILLISECONDS);
    }

    private RequestOptions options(Map<String, Object> step) {
        Map<String, Object> given = Json.object(step.get("options"));
        RequestOptions options = RequestOptions.NONE;
        if (given == null) {
            return options;
        }
        if (given.containsKey("idempotency_key")) {
            options = options.idempotencyKey((String) given.get("idempotency_key"));
        }
        if (given.containsKey("idempotency_key_from_step")) {
            options = options.idempotencyKey(keys.get((int) number(given, "idempotency_key_from_step", 0)));
        }
        if (given.containsKey("timeout_ms")) {
            options = options.timeout(Duration.ofMillis(number(given, "timeout_ms", 0)));
        }
        if (given.containsKey("deadline_ms")) {
            options = options.deadline(Duration.ofMillis(number(given, "deadline_ms", 0)));
        }
        if (Json.object(given.get("headers")) != null) {
            for (Map.Entry<String, Object> header : Json.object(given.get("headers")).entrySet()) {
                options = options.header(header.getKey(), (String) header.getValue());
            }
        }
        return options;
    }

    static long number(Map<String, Object> map, String name, long missing) {
        return map.get(name) instanceof Number number ? number.longValue() : missing;
    }

    private static DoubleSupplier inTurn(List<?> numbers) {
        AtomicLong next = new AtomicLong();
        return () -> ((Number) numbers.get((int) (next.getAndIncrement() % numbers.size()))).doubleValue();
    }
}
