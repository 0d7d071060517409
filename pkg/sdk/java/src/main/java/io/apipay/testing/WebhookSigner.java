package io.apipay.testing;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.time.Instant;
import java.util.HexFormat;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Signs payloads as ApiPay does. */
public final class WebhookSigner {
    private WebhookSigner() {}

    /**
     * Makes the value of ApiPay-Signature.
     *
     * @param payload the body's bytes
     * @param time when it is signed
     * @param secrets the secrets; during a rotation with the active one first
     * @return the header's value
     */
    public static String sign(byte[] payload, Instant time, String... secrets) {
        StringBuilder header = new StringBuilder("t=").append(time.getEpochSecond());
        for (String secret : secrets) {
            try {
                Mac mac = Mac.getInstance("HmacSHA256");
                mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
                mac.update((time.getEpochSecond() + ".").getBytes(StandardCharsets.US_ASCII));
                header.append(",v1=").append(HexFormat.of().formatHex(mac.doFinal(payload)));
            } catch (GeneralSecurityException e) {
                throw new IllegalStateException("every Java runtime has HmacSHA256", e);
            }
        }
        return header.toString();
    }
}
