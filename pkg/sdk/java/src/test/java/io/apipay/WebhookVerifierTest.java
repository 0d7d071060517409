package io.apipay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.apipay.testing.WebhookSigner;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.List;
import org.junit.jupiter.api.Test;

class WebhookVerifierTest {
    private static final String SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    private static final byte[] PAYLOAD = "{\"id\":\"evt_1\",\"type\":\"ping\"}".getBytes(StandardCharsets.UTF_8);
    private static final Instant NOW = Instant.ofEpochSecond(1_700_000_000);

    private final WebhookVerifier verifier = WebhookVerifier.of(SECRET).clock(Clock.fixed(NOW, ZoneOffset.UTC));

    @Test
    void whatTheHelperSignsIsAccepted() {
        assertEquals("evt_1", verifier.constructEvent(PAYLOAD, List.of(WebhookSigner.sign(PAYLOAD, NOW, "whsec_new", SECRET))).id());
    }

    @Test
    void oneHeaderIsDue() {
        String header = WebhookSigner.sign(PAYLOAD, NOW, SECRET);
        assertThrows(SignatureVerificationException.class, () -> verifier.constructEvent(PAYLOAD, List.of(header, header)));
        assertThrows(SignatureVerificationException.class, () -> verifier.constructEvent(PAYLOAD, (List<String>) null));
    }

    @Test
    void secretIsReachableButNotPrinted() {
        Secret secret = new Secret(SECRET);
        assertEquals(SECRET, secret.reveal());
        assertEquals("[redacted]", secret.toString());
    }
}
