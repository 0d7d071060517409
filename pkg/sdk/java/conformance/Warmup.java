package io.apipay;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/** Loads what a call needs before the first job: a cold JVM on a busy machine takes longer than the vectors' timeouts. */
final class Warmup {
    private Warmup() {}

    static void run() throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        AtomicInteger requests = new AtomicInteger();
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            boolean limited = exchange.getRequestMethod().equals("GET") && requests.getAndIncrement() % 2 == 0;
            byte[] body = (limited ? "{\"code\":\"rate_limited\"}" : "{\"id\":\"pi_1\",\"amount\":1}").getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Retry-After", "0");
            exchange.sendResponseHeaders(limited ? 429 : 200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        try {
            ApiPay client = ApiPay.builder("apk_test_warmup").baseUrl("http://127.0.0.1:" + server.getAddress().getPort())
                    .sleeper(wait -> CompletableFuture.completedFuture(null)).build();
            for (int i = 0; i < 20; i++) {
                client.paymentIntents().get("pi_1");
                client.async().paymentIntents().create(new PaymentIntentCreateParams(1, "EUR")).join();
            }
        } finally {
            server.stop(0);
        }
    }
}
