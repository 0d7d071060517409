package io.apipay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs with jdk.httpclient.enableAllMethodRetry=true, see pom.xml: java.net.http would repeat all of these. */
@Timeout(60)
class SentOnceTest {
    @Test
    void eachMethodOnReusedConnectionThatIsCut() throws IOException {
        cut(client -> client.paymentIntents().create(new PaymentIntentCreateParams(1000, "EUR")), "POST");
        cut(client -> client.paymentIntents().cancel("pi_1"), "POST");
        cut(client -> client.paymentIntents().get("pi_1"), "GET");
        cut(client -> client.webhookEndpoints().delete("we_1"), "DELETE");
        cut(client -> client.webhookEndpoints().update("we_1", new WebhookEndpointUpdateParams().status("disabled")), "PATCH");
    }

    /** Answers the first request, reads the second on the same connection and closes; the call may not be seen again. */
    private static void cut(Consumer<ApiPay> call, String method) throws IOException {
        List<String> requests = new CopyOnWriteArrayList<>();
        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Thread accepting = new Thread(() -> {
                try {
                    while (true) {
                        serve(server.accept(), requests);
                    }
                } catch (IOException e) {
                    return; // the server was closed
                }
            });
            accepting.setDaemon(true);
            accepting.start();
            ApiPay client = ApiPay.builder("apk_test_1").baseUrl("http://127.0.0.1:" + server.getLocalPort())
                    .timeout(Duration.ofSeconds(20)).build();
            assertEquals("pi_1", client.paymentIntents().get("pi_1").id());
            ApiPayException e = assertThrows(ApiPayException.class, () -> call.accept(client));
            assertEquals(ApiPayException.Kind.CONNECTION, e.kind());
            assertEquals(1, e.attempts());
            assertEquals(List.of("GET", method), requests);
        }
    }

    private static void serve(Socket connection, List<String> requests) throws IOException {
        try (connection) {
            BufferedReader in = new BufferedReader(new InputStreamReader(connection.getInputStream(), StandardCharsets.US_ASCII));
            for (int served = 0; served < 2; served++) {
                String line = in.readLine();
                if (line == null) {
                    return;
                }
                requests.add(line.split(" ")[0]);
                int length = 0;
                for (line = in.readLine(); line != null && !line.isEmpty(); line = in.readLine()) {
                    if (line.toLowerCase().startsWith("content-length:")) {
                        length = Integer.parseInt(line.substring(15).trim());
                    }
                }
                for (int i = 0; i < length; i++) {
                    in.read();
                }
                if (served == 0) {
                    String body = "{\"id\":\"pi_1\"}";
                    connection.getOutputStream().write(("HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body)
                            .getBytes(StandardCharsets.US_ASCII));
                }
            }
        }
    }
}
