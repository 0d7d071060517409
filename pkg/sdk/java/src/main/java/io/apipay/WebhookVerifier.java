package io.apipay;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Clock;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Verifies the deliveries of webhooks. Immutable. */
public final class WebhookVerifier {
    /** The header that signs a delivery. */
    public static final String SIGNATURE_HEADER = "ApiPay-Signature";
    /** How old, or how far ahead, a signature may be. */
    public static final Duration DEFAULT_TOLERANCE = Duration.ofSeconds(300);

    private static final int MAX_HEADER = 4096;
    private static final int MAX_TIMESTAMP_DIGITS = 15;

    private final List<Secret> secrets;
    private final Duration tolerance;
    private final Clock clock;

    private WebhookVerifier(List<Secret> secrets, Duration tolerance, Clock clock) {
        this.secrets = secrets;
        this.tolerance = tolerance;
        this.clock = clock;
    }

    /**
     * Makes a verifier.
     *
     * @param secrets the endpoint's secret; during a rotation the new one and the old one
     * @return a verifier with the default tolerance
     */
    public static WebhookVerifier of(String... secrets) {
        List<Secret> wrapped = new ArrayList<>();
        for (String secret : secrets) {
            wrapped.add(new Secret(secret == null ? "" : secret));
        }
        return new WebhookVerifier(wrapped, DEFAULT_TOLERANCE, Clock.systemUTC());
    }

    /**
     * Sets another tolerance.
     *
     * @param value in whole seconds; zero allows the current second only
     * @return the changed verifier
     */
    public WebhookVerifier tolerance(Duration value) {
        return new WebhookVerifier(secrets, value, clock);
    }

    /**
     * Sets another clock.
     *
     * @param value the clock
     * @return the changed verifier
     */
    public WebhookVerifier clock(Clock value) {
        return new WebhookVerifier(secrets, tolerance, value);
    }

    /**
     * Checks that a header signs a payload.
     *
     * @param payload the body's bytes as they were received
     * @param header the value of ApiPay-Signature; null if there is none, or more than one
     * @throws SignatureVerificationException for every refusal
     */
    public void verify(byte[] payload, String header) {
        if (secrets.isEmpty()) {
            throw new SignatureVerificationException("no secret is configured");
        }
        for (Secret secret : secrets) {
            if (secret.reveal().isEmpty()) { // the HMAC under an empty key is anybody's
                throw new SignatureVerificationException("a configured secret is empty");
            }
        }
        Header parsed = parse(header);
        String digits = parsed.timestamp.replaceFirst("^0+", "");
        if (digits.length() > MAX_TIMESTAMP_DIGITS) {
            throw new SignatureVerificationException("the timestamp is outside the tolerance");
        }
        long age = Math.floorDiv(clock.millis(), 1000L) - (digits.isEmpty() ? 0 : Long.parseLong(digits));
        if (Math.abs(age) > tolerance.getSeconds()) {
            throw new SignatureVerificationException("the timestamp is outside the tolerance");
        }
        boolean fits = false;
        for (Secret secret : secrets) {
            byte[] want = hmac(secret, parsed.timestamp, payload);
            for (byte[] signature : parsed.signatures) {
                fits |= MessageDigest.isEqual(want, signature);
            }
        }
        if (!fits) {
            throw new SignatureVerificationException("no signature fits");
        }
    }

    /**
     * Verifies, and then reads the event.
     *
     * @param payload the body's bytes as they were received
     * @param header the value of ApiPay-Signature; null if there is none, or more than one
     * @return the event
     * @throws SignatureVerificationException if the payload is not signed
     * @throws ApiPayException with {@code invalid_response}, if it is signed but is no event
     */
    public Event constructEvent(byte[] payload, String header) {
        verify(payload, header);
        byte[] text = payload;
        if (text.length >= 3 && (text[0] & 0xff) == 0xef && (text[1] & 0xff) == 0xbb && (text[2] & 0xff) == 0xbf) {
            text = Arrays.copyOfRange(text, 3, text.length); // a byte order mark
        }
        try {
            return new Event(Json.readObject(text));
        } catch (Json.InvalidJsonException | ApiObject.InvalidMemberException e) {
            throw new ApiPayException.Builder()
                    .of(ApiPayException.Kind.DECODE, ErrorCode.INVALID_RESPONSE, e)
                    .build();
        }
    }

    /**
     * Verifies, and then reads the event of a request.
     *
     * @param payload the body's bytes as they were received
     * @param headers every value of ApiPay-Signature; null or empty if there is none
     * @return the event
     * @throws SignatureVerificationException if the payload is not signed, or there is not one header
     * @throws ApiPayException with {@code invalid_response}, if it is signed but is no event
     */
    public Event constructEvent(byte[] payload, List<String> headers) {
        if (headers == null || headers.size() != 1) {
            throw new SignatureVerificationException("there must be one signature header");
        }
        return constructEvent(payload, headers.get(0));
    }

    private record Header(String timestamp, List<byte[]> signatures) {}

    /** Reads {@code t=<digits>,v1=<hex>[,v1=<hex>]}. Unknown elements are ignored, and so is a v1 that is no signature. */
    private static Header parse(String header) {
        SignatureVerificationException malformed = new SignatureVerificationException("the header is malformed");
        if (header == null || header.getBytes(StandardCharsets.UTF_8).length > MAX_HEADER) {
            throw malformed;
        }
        String timestamp = null;
        List<byte[]> signatures = new ArrayList<>();
        for (String part : header.split(",", -1)) {
            String element = part.replaceAll("^[ \t]+|[ \t]+$", "");
            int equals = element.indexOf('=');
            if (equals < 0) {
                throw malformed;
            }
            String value = element.substring(equals + 1);
            switch (element.substring(0, equals)) {
                case "t":
                    if (timestamp != null || value.isEmpty() || !value.chars().allMatch(c -> c >= '0' && c <= '9')) {
                        throw malformed;
                    }
                    timestamp = value;
                    break;
                case "v1":
                    if (value.length() == 64 && value.chars().allMatch(c -> c >= '0' && c <= '9' || c >= 'a' && c <= 'f')) {
                        signatures.add(HexFormat.of().parseHex(value));
                    }
                    break;
                default:
                    break;
            }
        }
        if (timestamp == null) {
            throw malformed;
        }
        return new Header(timestamp, signatures);
    }

    private static byte[] hmac(Secret secret, String timestamp, byte[] payload) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret.reveal().getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            mac.update((timestamp + ".").getBytes(StandardCharsets.US_ASCII)); // the digits as they were received
            return mac.doFinal(payload);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java runtime has HmacSHA256", e);
        }
    }

    /** Prints no secret. */
    @Override
    public String toString() {
        return "WebhookVerifier{}";
    }
}
