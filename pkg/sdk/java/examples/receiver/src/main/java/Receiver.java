import com.sun.net.httpserver.HttpServer;
import io.apipay.ApiPayException;
import io.apipay.Event;
import io.apipay.SignatureVerificationException;
import io.apipay.WebhookVerifier;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A receiver of ApiPay's webhooks: it verifies each delivery and handles each event once. */
public class Receiver {
    private static final int MAX_BODY = 1 << 20; // an event has at most 256 KiB

    public static void main(String[] args) throws IOException {
        // During a rotation: WebhookVerifier.of(newSecret, oldSecret).
        WebhookVerifier verifier = WebhookVerifier.of(System.getenv("APIPAY_WEBHOOK_SECRET"));
        Set<String> seen = ConcurrentHashMap.newKeySet(); // a table with a unique event id, in a real receiver

        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 4242), 0);
        server.createContext("/hooks", exchange -> {
            byte[] payload = exchange.getRequestBody().readNBytes(MAX_BODY);
            int status = 204;
            try {
                Event event = verifier.constructEvent(payload, exchange.getRequestHeaders().get(WebhookVerifier.SIGNATURE_HEADER));
                if (seen.add(event.id())) { // the same event can come twice, with the same id
                    System.out.println(event.id() + " " + event.type());
                }
            } catch (SignatureVerificationException | ApiPayException e) {
                status = 400;
            }
            exchange.sendResponseHeaders(status, -1);
            exchange.close();
        });
        server.start();
    }
}
