package io.apipay;

import io.apipay.Transport.Answer;
import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * One call: an attempt, and for a GET the retries that the policy allows. It fails with an {@link ApiPayException}; canceled, it
 * fails with a CancellationException whose cause is one.
 */
final class Call<T> extends CompletableFuture<T> {
    private final Core core;
    private final Transport.Request request;
    private final Function<Map<String, Object>, T> reader;
    private final Duration timeout;
    private final String key;
    private final long begunNanos = System.nanoTime();
    private final long deadlineNanos;
    private final CompletableFuture<Void> deadlineTimer;

    // Guarded by this.
    private CompletableFuture<?> stage;
    private int attempts;
    /** The failure that is being waited on. */
    private ApiPayException.Builder last = new ApiPayException.Builder();

    /** reader is null if the answer's body is ignored. */
    Call(Core core, Transport.Request request, Function<Map<String, Object>, T> reader, String key, RequestOptions options) {
        this.core = core;
        this.request = request;
        this.reader = reader;
        this.key = key;
        timeout = options.timeout() == null ? core.timeout : options.timeout();
        if (options.deadline() == null) {
            deadlineNanos = Long.MAX_VALUE;
            deadlineTimer = null;
        } else {
            deadlineNanos = Math.max(0, options.deadline().toNanos());
            deadlineTimer = new CompletableFuture<Void>().orTimeout(deadlineNanos, TimeUnit.NANOSECONDS);
            deadlineTimer.whenCompleteAsync((nothing, expired) -> {
                if (expired != null) {
                    stop(ended(ApiPayException.Kind.TIMEOUT, ErrorCode.TIMEOUT, new IOException("the call reached its deadline")));
                }
            }, Core.EXECUTOR);
            whenComplete((value, failure) -> deadlineTimer.complete(null));
        }
    }

    Call<T> start() {
        CompletableFuture<Answer> sent;
        synchronized (this) {
            if (isDone()) {
                return this;
            }
            attempts++;
            last = new ApiPayException.Builder();
            sent = core.transport.send(request, timeout);
            stage = sent;
        }
        sent.whenCompleteAsync((answer, canceled) -> {
            if (answer == null || isDone()) {
                return;
            }
            try {
                answered(answer);
            } catch (RuntimeException e) {
                // The program's own clock, random or sleeper failed: the call must end all the same, with its key.
                completeExceptionally(failure(answer, attemptsMade(), e).build());
            }
        }, Core.EXECUTOR);
        return this;
    }

    private void answered(Answer answer) {
        if (answer.failure() == null && answer.success()) {
            finish(answer);
            return;
        }
        int made = attemptsMade();
        ApiPayException.Builder failure = failure(answer, made);
        boolean retryable = answer.failure() != null
                ? answer.nothingSent()
                : answer.status() == 429 || answer.status() >= 500;
        if (!retryable || !request.method().equals("GET") || made > core.maxRetries) {
            completeExceptionally(failure.build());
            return;
        }
        int n = made - 1;
        Duration wait = RetryPolicy.wait(n, core.random.getAsDouble(), failure.status, failure.code, failure.retryAfter);
        if (deadlineNanos != Long.MAX_VALUE && System.nanoTime() - begunNanos + wait.toNanos() >= deadlineNanos) {
            completeExceptionally(failure.build());
            return;
        }
        CompletableFuture<Void> waiting;
        synchronized (this) {
            if (isDone()) {
                return;
            }
            last = failure;
            waiting = core.sleeper.sleep(wait);
            stage = waiting;
        }
        waiting.whenCompleteAsync((nothing, broken) -> {
            if (broken == null) {
                start();
            } else {
                // Somebody's sleeper gave up; the call is not asked for again.
                stop(ended(ApiPayException.Kind.CANCELED, ErrorCode.CANCELED, broken));
            }
        }, Core.EXECUTOR);
    }

    private synchronized int attemptsMade() {
        return attempts;
    }

    /** What an answer that is not used has for its exception. */
    private ApiPayException.Builder failure(Answer answer, int made, Throwable cause) {
        ApiPayException.Builder b = new ApiPayException.Builder();
        if (answer.failure() == null) {
            b.of(ApiPayException.Kind.DECODE, ErrorCode.INVALID_RESPONSE, cause);
        } else {
            b.of(ApiPayException.Kind.CONNECTION, ErrorCode.CONNECTION_ERROR, cause);
        }
        b.status = answer.status();
        b.requestId = answer.header("X-Request-Id");
        b.idempotencyKey = key;
        b.attempts = made;
        if (answer.body() != null) {
            b.body = Arrays.copyOf(answer.body(), Math.min(answer.body().length, Transport.MAX_ERROR_BODY));
        }
        return b;
    }

    private ApiPayException.Builder failure(Answer answer, int made) {
        ApiPayException.Builder b = failure(answer, made, null);
        if (answer.timedOut()) {
            return b.of(ApiPayException.Kind.TIMEOUT, ErrorCode.TIMEOUT, answer.failure());
        }
        if (answer.failure() != null) {
            return b.of(ApiPayException.Kind.CONNECTION, ErrorCode.CONNECTION_ERROR, answer.failure());
        }
        b.of(ApiPayException.Kind.API, ErrorCode.UNKNOWN, null);
        try {
            b.problem = new Problem(Json.readObject(answer.body()));
            if (b.problem.code() != null && !b.problem.code().isEmpty()) {
                b.code = b.problem.code();
            }
        } catch (Json.InvalidJsonException e) {
            b.problem = null; // an answer that is not the API's; its body is kept
        }
        b.retryAfter = RetryPolicy.retryAfter(answer.headerValues("Retry-After"), core.clock.instant());
        if (!answer.headerValues("Retry-After").isEmpty()) {
            b.retryAfterHeader = String.join(", ", answer.headerValues("Retry-After"));
        }
        return b;
    }

    private void finish(Answer answer) {
        int made = attemptsMade();
        if (reader == null) {
            complete(null);
            return;
        }
        try {
            if (answer.tooLarge()) {
                throw new Json.InvalidJsonException("the answer is larger than 16 MiB");
            }
            T value = reader.apply(Json.readObject(answer.body()));
            if (value instanceof ApiObject object) {
                object.answeredBy(new ApiResponse(answer.status(), answer.header("X-Request-Id"), key,
                        "true".equalsIgnoreCase(answer.header("Idempotent-Replayed")), made));
            }
            complete(value);
        } catch (Json.InvalidJsonException | ApiObject.InvalidMemberException e) {
            completeExceptionally(failure(answer, made, e).build());
        }
    }

    /** The failure of a call that is over; what is known of the answer that was waited on stays in it. */
    private synchronized ApiPayException ended(ApiPayException.Kind kind, String code, Throwable cause) {
        ApiPayException.Builder b = last.of(kind, code, cause);
        b.idempotencyKey = key;
        b.attempts = attempts;
        return b.build();
    }

    private void stop(Throwable failure) {
        completeExceptionally(failure);
        CompletableFuture<?> running;
        synchronized (this) {
            running = stage;
        }
        if (running != null) {
            running.cancel(true);
        }
    }

    /** The SDK's own exception for a cancellation, with what is known of the call. */
    ApiPayException canceled(Throwable cause) {
        return ended(ApiPayException.Kind.CANCELED, ErrorCode.CANCELED, cause);
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
        if (!isDone()) {
            CancellationException cancellation = new CancellationException("apipay: the call was canceled");
            cancellation.initCause(canceled(null));
            stop(cancellation);
        }
        return isCancelled();
    }

    /** Dependents are plain futures: they have no attempt to stop. */
    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
        return new CompletableFuture<>();
    }
}
