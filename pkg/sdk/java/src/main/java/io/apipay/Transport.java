package io.apipay;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.URI;
import java.net.UnknownHostException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** Makes one attempt with java.net.http, which is kept from sending anything a second time. */
final class Transport {
    static final int MAX_ERROR_BODY = 1 << 20;
    static final int MAX_SUCCESS_BODY = 16 << 20;

    private final HttpClient http;

    Transport(HttpClient http) {
        this.http = http;
    }

    /** One request. */
    record Request(String method, URI uri, Map<String, String> headers, byte[] body) {}

    /** An attempt's outcome. status is 0 and headers null without a status line; failure is null for a complete answer. */
    record Answer(int status, HttpHeaders headers, byte[] body, boolean tooLarge, Throwable failure, boolean timedOut,
            boolean nothingSent) {
        boolean success() {
            return status >= 200 && status <= 299;
        }

        String header(String name) {
            return headers == null ? null : headers.firstValue(name).orElse(null);
        }

        List<String> headerValues(String name) {
            return headers == null ? List.of() : headers.allValues(name);
        }
    }

    /** Begins an attempt. The future never fails; canceling it closes the connection. */
    CompletableFuture<Answer> send(Request in, Duration timeout) {
        OnceBody once = new OnceBody(in.body());
        HttpRequest.Builder request = HttpRequest.newBuilder(in.uri()).method(in.method(), once);
        in.headers().forEach(request::setHeader);
        Received received = new Received();
        CompletableFuture<HttpResponse<byte[]>> exchange;
        try {
            exchange = http.sendAsync(request.build(), received);
        } catch (RuntimeException e) {
            exchange = CompletableFuture.failedFuture(e);
        }
        CompletableFuture<HttpResponse<byte[]>> running = exchange;
        CompletableFuture<Answer> result = new CompletableFuture<>();
        // The request's own timeout in java.net.http ends with the headers; this one covers the body.
        CompletableFuture<Void> timer = new CompletableFuture<Void>().orTimeout(timeout.toNanos(), TimeUnit.NANOSECONDS);
        timer.whenCompleteAsync((nothing, expired) -> {
            if (expired != null) {
                result.complete(received.failed(new IOException("the attempt reached its timeout"), true, false));
            }
        }, Core.EXECUTOR);
        running.whenComplete((response, failure) -> result.complete(failure == null
                ? received.complete(response.body())
                : received.failed(unwrap(failure), false, !once.begun() && isConnectFailure(unwrap(failure)))));
        result.whenComplete((answer, canceled) -> {
            timer.complete(null);
            running.cancel(true);
            received.stop();
        });
        return result;
    }

    private static Throwable unwrap(Throwable failure) {
        Throwable t = failure;
        while ((t instanceof CompletionException || t instanceof UncheckedIOException) && t.getCause() != null) {
            t = t.getCause();
        }
        for (Throwable cause = t; cause != null; cause = cause.getCause()) {
            // The parser's messages quote what the server sent.
            if (cause instanceof ProtocolException) {
                ProtocolException silent = new ProtocolException("the answer is not HTTP/1.1");
                silent.setStackTrace(cause.getStackTrace());
                return silent;
            }
        }
        return t;
    }

    private static boolean isConnectFailure(Throwable failure) {
        for (Throwable t = failure; t != null; t = t.getCause()) {
            if (t instanceof ConnectException || t instanceof HttpConnectTimeoutException
                    || t instanceof UnknownHostException || t instanceof UnresolvedAddressException) {
                return true;
            }
        }
        return false;
    }

    /**
     * A body that is sent once. On a connection that ends without an answer java.net.http makes a second attempt of its own: for
     * GET always, for every method if a program sets jdk.httpclient.enableAllMethodRetry. It asks for the length when it
     * is about to write the header section, once per attempt, so refusing the second question keeps the request off the wire.
     */
    private static final class OnceBody implements HttpRequest.BodyPublisher {
        private final HttpRequest.BodyPublisher body;
        private final AtomicBoolean begun = new AtomicBoolean();

        OnceBody(byte[] bytes) {
            body = HttpRequest.BodyPublishers.ofByteArray(bytes == null ? new byte[0] : bytes);
        }

        boolean begun() {
            return begun.get();
        }

        @Override
        public long contentLength() {
            if (!begun.compareAndSet(false, true)) {
                throw new UncheckedIOException(new IOException("the connection ended without an answer"));
            }
            return body.contentLength();
        }

        @Override
        public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
            body.subscribe(subscriber);
        }
    }

    /** Keeps what arrives of an answer: status and headers also if the body does not, and no more than the limit of the body. */
    private static final class Received implements HttpResponse.BodyHandler<byte[]>, HttpResponse.BodySubscriber<byte[]> {
        private final CompletableFuture<byte[]> bytes = new CompletableFuture<>();
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        private volatile HttpResponse.ResponseInfo info;
        private volatile Flow.Subscription subscription;
        private volatile boolean tooLarge;
        private int limit;

        @Override
        public HttpResponse.BodySubscriber<byte[]> apply(HttpResponse.ResponseInfo response) {
            info = response;
            limit = response.statusCode() >= 200 && response.statusCode() <= 299 ? MAX_SUCCESS_BODY : MAX_ERROR_BODY;
            return this;
        }

        Answer complete(byte[] body) {
            return new Answer(info.statusCode(), info.headers(), body, tooLarge, null, false, false);
        }

        Answer failed(Throwable failure, boolean timedOut, boolean nothingSent) {
            HttpResponse.ResponseInfo known = info;
            return known == null
                    ? new Answer(0, null, null, false, failure, timedOut, nothingSent)
                    : new Answer(known.statusCode(), known.headers(), null, false, failure, timedOut, false);
        }

        void stop() {
            Flow.Subscription running = subscription;
            if (running != null && !bytes.isDone()) {
                running.cancel();
            }
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return bytes;
        }

        @Override
        public void onSubscribe(Flow.Subscription s) {
            subscription = s;
            s.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(List<ByteBuffer> buffers) {
            for (ByteBuffer next : buffers) {
                if (bytes.isDone()) {
                    return;
                }
                int room = limit - buffer.size();
                byte[] chunk = new byte[Math.min(room, next.remaining())];
                next.get(chunk);
                buffer.write(chunk, 0, chunk.length);
                if (next.hasRemaining()) {
                    tooLarge = true;
                    subscription.cancel();
                    bytes.complete(buffer.toByteArray());
                }
            }
        }

        @Override
        public void onError(Throwable failure) {
            bytes.completeExceptionally(failure);
        }

        @Override
        public void onComplete() {
            bytes.complete(buffer.toByteArray());
        }
    }
}
