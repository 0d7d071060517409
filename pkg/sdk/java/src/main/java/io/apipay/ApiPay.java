package io.apipay;

import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.time.Clock;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.DoubleSupplier;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/**
 * Calls ApiPay with one API key. It is safe for use by several threads; make one and keep it, since it holds the connections.
 *
 * <pre>{@code
 * ApiPay apipay = ApiPay.builder(System.getenv("APIPAY_API_KEY")).build();
 * PaymentIntent intent = apipay.paymentIntents().create(
 *         new PaymentIntentCreateParams(1000, "EUR").paymentMethod("pm_card_visa").confirm(true)); // 10.00 EUR
 * }</pre>
 *
 * <p>Every call fails with an {@link ApiPayException}. Interrupting a waiting thread ends its call; the flag stays set.
 */
public final class ApiPay {
    /** Where ApiPay is reached unless the builder is told otherwise. */
    public static final String DEFAULT_BASE_URL = "https://api.apipay.io";

    private final Core core;

    private ApiPay(Core core) {
        this.core = core;
    }

    /**
     * Begins to make a client.
     *
     * @param apiKey {@code apk_test_...} or {@code apk_live_...}
     * @return a builder
     */
    public static Builder builder(String apiKey) {
        return new Builder(apiKey);
    }

    /**
     * Payment intents.
     *
     * @return the calls
     */
    public PaymentIntents paymentIntents() {
        return new PaymentIntents(core);
    }

    /**
     * Refunds.
     *
     * @return the calls
     */
    public Refunds refunds() {
        return new Refunds(core);
    }

    /**
     * Webhook endpoints.
     *
     * @return the calls
     */
    public WebhookEndpoints webhookEndpoints() {
        return new WebhookEndpoints(core);
    }

    /**
     * Events.
     *
     * @return the calls
     */
    public Events events() {
        return new Events(core);
    }

    /**
     * The same client with futures.
     *
     * @return the asynchronous client; it shares the connections
     */
    public ApiPayAsync async() {
        return new ApiPayAsync(core);
    }

    /** Prints no key. */
    @Override
    public String toString() {
        return "ApiPay{" + core.baseUrl() + "}";
    }

    /** A client in the making. */
    public static final class Builder {
        final Supplier<String> authorization;
        String baseUrl = DEFAULT_BASE_URL;
        Duration timeout = Duration.ofSeconds(30);
        int maxRetries = 2;
        Clock clock = Clock.systemUTC();
        Sleeper sleeper = Sleeper.DEFAULT;
        DoubleSupplier random = RANDOM;

        /** The source of jitter; keys do not come from it. */
        static final DoubleSupplier RANDOM = () -> ThreadLocalRandom.current().nextDouble();

        private Duration connectTimeout = Duration.ofSeconds(10);
        private ProxySelector proxy;
        private SSLContext sslContext;

        private Builder(String apiKey) {
            if (apiKey == null || !RequestOptions.visibleAscii(apiKey)) {
                throw ApiPayException.refusal("the API key is empty or has characters that no key has");
            }
            authorization = () -> "Bearer " + apiKey;
        }

        /**
         * Sets the address of ApiPay, e.g. that of a local stack. A path in it is kept.
         *
         * @param url {@code http(s)://host[:port][/path]}
         * @return this
         */
        public Builder baseUrl(String url) {
            URI uri;
            try {
                uri = URI.create(url);
            } catch (RuntimeException e) {
                uri = URI.create("");
            }
            boolean http = "http".equalsIgnoreCase(uri.getScheme()) || "https".equalsIgnoreCase(uri.getScheme());
            if (!http || uri.getHost() == null || uri.getUserInfo() != null || uri.getQuery() != null || uri.getFragment() != null) {
                throw ApiPayException.refusal("the base URL must be http(s)://host[:port][/path]");
            }
            baseUrl = url.replaceAll("/+$", "");
            return this;
        }

        /**
         * Limits each attempt, from connecting to the last byte of the answer; default 30 s.
         *
         * @param limit the limit
         * @return this
         */
        public Builder timeout(Duration limit) {
            timeout = positive(limit);
            return this;
        }

        /**
         * Limits connecting, TLS included; default 10 s.
         *
         * @param limit the limit
         * @return this
         */
        public Builder connectTimeout(Duration limit) {
            connectTimeout = positive(limit);
            return this;
        }

        /**
         * Sets how often a GET is repeated at most; default 2, 0 for never. A POST is never repeated.
         *
         * @param n the number
         * @return this
         */
        public Builder maxRetries(int n) {
            if (n < 0) {
                throw ApiPayException.refusal("maxRetries must not be negative");
            }
            maxRetries = n;
            return this;
        }

        /**
         * Sets the clock that Retry-After dates are compared with.
         *
         * @param value the clock
         * @return this
         */
        public Builder clock(Clock value) {
            clock = value;
            return this;
        }

        /**
         * Sets how a wait is waited.
         *
         * @param value the sleeper
         * @return this
         */
        public Builder sleeper(Sleeper value) {
            sleeper = value;
            return this;
        }

        /**
         * Sets the source of jitter: numbers in [0,1). Keys do not come from it.
         *
         * @param value the source
         * @return this
         */
        public Builder random(DoubleSupplier value) {
            random = value;
            return this;
        }

        /**
         * Sets the proxies; default are those of the Java runtime.
         *
         * @param value the selector
         * @return this
         */
        public Builder proxy(ProxySelector value) {
            proxy = value;
            return this;
        }

        /**
         * Sets what TLS trusts.
         *
         * @param value the context
         * @return this
         */
        public Builder sslContext(SSLContext value) {
            sslContext = value;
            return this;
        }

        private static Duration positive(Duration limit) {
            if (limit.isZero() || limit.isNegative()) {
                throw ApiPayException.refusal("a timeout must be positive");
            }
            return limit;
        }

        /**
         * Makes the client.
         *
         * @return the client
         */
        public ApiPay build() {
            // HTTP/1.1: over HTTP/2 the transport repeats what a server says it has not processed.
            HttpClient.Builder http = HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .followRedirects(HttpClient.Redirect.NEVER)
                    .executor(Core.EXECUTOR)
                    .connectTimeout(connectTimeout);
            if (proxy != null) {
                http.proxy(proxy);
            }
            if (sslContext != null) {
                http.sslContext(sslContext);
            }
            return new ApiPay(new Core(this, new Transport(http.build())));
        }

        /** Prints no key. */
        @Override
        public String toString() {
            return "ApiPay.Builder{" + baseUrl + "}";
        }
    }
}
