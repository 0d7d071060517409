package io.apipay;

/**
 * What a successful call was answered with, besides the object.
 *
 * @param status 201 for what was created, 202 while an outcome is unknown
 * @param requestId names the call in ApiPay's logs; may be null
 * @param idempotencyKey the key that the POST was sent with; null for other calls
 * @param replayed the key was known: the answer is that of the first call
 * @param attempts how many attempts were made
 */
public record ApiResponse(int status, String requestId, String idempotencyKey, boolean replayed, int attempts) {}
