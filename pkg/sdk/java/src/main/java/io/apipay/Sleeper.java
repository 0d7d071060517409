package io.apipay;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** How the client waits before a retry. */
@FunctionalInterface
public interface Sleeper {
    /**
     * Begins to wait.
     *
     * @param duration how long
     * @return completes when the wait is over; it is canceled if the call is canceled first
     */
    CompletableFuture<Void> sleep(Duration duration);

    /** Waits without a thread. */
    Sleeper DEFAULT = duration -> new CompletableFuture<Void>()
            .completeOnTimeout(null, duration.toNanos(), TimeUnit.NANOSECONDS);
}
