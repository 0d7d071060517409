// Package webhook holds what payment-api, webhook-dispatcher and admin-api must agree on about outbound webhooks: how a
// signing secret looks, how a delivery is signed, how secrets are kept at rest, which addresses may be reached, and how a
// delivery is asked for again by hand.
package webhook
