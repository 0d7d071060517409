package io.apipay;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What the runner answers about results and errors. */
final class Results {
    private Results() {}

    static Object plain(Object value) {
        return value instanceof ApiObject object ? object.members() : value;
    }

    static Map<String, Object> error(Throwable failure) {
        Map<String, Object> error = new LinkedHashMap<>();
        for (Throwable t = failure; t != null; t = t.getCause()) {
            if (t instanceof SignatureVerificationException) {
                error.put("kind", "signature");
                error.put("code", "signature_verification_failed");
                return error;
            }
        }
        ApiPayException e = ApiPayException.of(failure)
                .orElseThrow(() -> new IllegalStateException("the SDK gave an exception of another type", failure));
        error.put("kind", e.kind().name().toLowerCase(Locale.ROOT));
        error.put("code", e.code());
        if (e.status() != 0) {
            error.put("status", e.status());
            error.put("body_length", e.body().length);
            error.put("body_prefix", new String(Arrays.copyOf(e.body(), Math.min(e.body().length, 100)), StandardCharsets.UTF_8));
        }
        put(error, "problem", e.problem() == null ? null : e.problem().members());
        put(error, "request_id", e.requestId());
        put(error, "idempotency_key", e.idempotencyKey());
        put(error, "retry_after", e.retryAfterHeader());
        e.retryAfter().ifPresent(seconds -> error.put("retry_after_seconds", seconds));
        error.put("attempts", e.attempts());
        error.put("has_cause", e.getCause() != null);
        return error;
    }

    private static void put(Map<String, Object> map, String name, Object value) {
        if (value != null) {
            map.put(name, value);
        }
    }

    /** Every form in which a program may print a value. */
    static List<Object> printed(Object value) {
        List<Object> forms = new ArrayList<>();
        forms.add(String.valueOf(value));
        forms.add(String.format("%s", value));
        forms.add(List.of(value).toString());
        if (value instanceof Throwable failure) {
            StringWriter trace = new StringWriter();
            new RuntimeException("creating the payment", failure).printStackTrace(new PrintWriter(trace));
            forms.add(trace.toString());
            forms.add(String.valueOf(failure.getMessage()));
            forms.add(failure.getLocalizedMessage());
            ApiPayException.of(failure).ifPresent(e -> forms.add(e + " " + e.getMessage() + " " + e.problem()));
        }
        if (value instanceof ApiObject object) {
            forms.add(object.members().toString());
        }
        if (value instanceof WebhookEndpoint endpoint) {
            forms.add(String.valueOf(endpoint.secret()));
        }
        if (value instanceof ApiPay client) {
            forms.add(client.async() + " " + client.paymentIntents() + " " + client.refunds() + " " + client.webhookEndpoints()
                    + " " + client.events() + " " + client.async().paymentIntents());
            forms.add(ApiPay.builder("apk_test_conformanceKEYMARKER0123456789").toString());
        }
        return forms;
    }
}
