package io.apipay;

import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.ResolverStyle;
import java.util.List;
import java.util.Locale;
import java.util.OptionalLong;

/** The calculations of the retry policy: how long to wait, and what Retry-After says. */
final class RetryPolicy {
    private static final double BASE_NANOS = 500e6;
    private static final double CEILING_NANOS = 8e9;
    private static final int CEILING_N = 4; // BASE * 2^CEILING_N is the ceiling
    /** The longest wait that a server's Retry-After can ask for. */
    private static final long MAX_WAIT_SECONDS = 60;

    /** The only form of date that counts. */
    private static final DateTimeFormatter IMF_FIXDATE = DateTimeFormatter
            .ofPattern("EEE, dd MMM uuuu HH:mm:ss 'GMT'", Locale.ENGLISH)
            .withResolverStyle(ResolverStyle.STRICT)
            .withZone(ZoneOffset.UTC);

    private RetryPolicy() {}

    /** The wait before retry n+1, n from 0: full jitter, random times the smaller of 500 ms * 2^n and 8 s. */
    static Duration backoff(int n, double random) {
        double limit = n < CEILING_N ? BASE_NANOS * (1 << Math.max(n, 0)) : CEILING_NANOS;
        if (!(random >= 0)) { // NaN too
            return Duration.ZERO;
        }
        return Duration.ofNanos((long) (Math.min(random, 1) * limit));
    }

    /** The wait before the answer with this status and code is asked for again. */
    static Duration wait(int n, double random, int status, String code, OptionalLong retryAfter) {
        boolean obeyed = (status == 429 && code.equals("rate_limited")) || (status == 503 && code.equals("gateway_unavailable"));
        if (obeyed && retryAfter.isPresent()) {
            return Duration.ofSeconds(Math.min(retryAfter.getAsLong(), MAX_WAIT_SECONDS));
        }
        return backoff(n, random);
    }

    /**
     * Reads a Retry-After header: how many whole seconds from now it asks for, rounded up and never negative. Only digits and
     * IMF-fixdate count; empty for anything else, and for a header that is there more than once.
     */
    static OptionalLong retryAfter(List<String> values, Instant now) {
        if (values.size() != 1) {
            return OptionalLong.empty();
        }
        String text = values.get(0).replaceAll("^[ \t]+|[ \t]+$", "");
        if (!text.isEmpty() && text.chars().allMatch(c -> c >= '0' && c <= '9')) {
            return OptionalLong.of(digits(text));
        }
        try {
            Instant date = Instant.from(IMF_FIXDATE.parse(text));
            if (!IMF_FIXDATE.format(date).equals(text)) {
                return OptionalLong.empty();
            }
            long millis = date.toEpochMilli() - now.toEpochMilli();
            return OptionalLong.of(millis <= 0 ? 0 : Math.min((millis - 1) / 1000 + 1, Integer.MAX_VALUE));
        } catch (DateTimeException e) {
            return OptionalLong.empty();
        }
    }

    /** Saturates: RFC 9111 asks for the greatest number one can represent. */
    private static long digits(String text) {
        long n = 0;
        for (char digit : text.toCharArray()) {
            n = n * 10 + (digit - '0');
            if (n > Integer.MAX_VALUE) {
                return Integer.MAX_VALUE;
            }
        }
        return n;
    }
}
