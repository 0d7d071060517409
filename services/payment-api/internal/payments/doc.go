// Package payments is the money path: payment intents, their confirmation, cancellation and refunds, and the loops that
// find out what became of a charge whose answer was lost. It owns the tables payment_intents, payment_attempts and
// refunds; README.md has its states and decisions.
package payments
