/**
 * The Java SDK of ApiPay; start at {@link io.apipay.ApiPay}.
 *
 * <p>Its retry policy cannot duplicate a charge: only GET is ever repeated, and a POST is on the wire at most once. Every
 * error of a POST exposes the idempotency key that it was sent with; calling again with that key is safe, with a new key it
 * may charge twice. See {@link io.apipay.ApiPayException}.
 */
package io.apipay;
