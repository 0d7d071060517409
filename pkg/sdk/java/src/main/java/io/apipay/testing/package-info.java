/** Helps to test receivers of ApiPay's webhooks. */
package io.apipay.testing;
