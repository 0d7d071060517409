// Package apipay is the Go SDK of ApiPay.
//
// Its retry policy cannot duplicate a charge: only GET is ever repeated, and a POST is on the wire at most once. Every
// error of a POST exposes the Idempotency-Key that it was sent with; calling again with that key is safe, with a new key it
// may charge twice. See README.md.
package apipay
