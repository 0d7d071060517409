// Package httpapi is the HTTP surface that payment-api and admin-api share:
// problem documents and their catalogue, strict JSON and query parsing,
// request ids, cursors, lists, rate limiting and the server itself.
//
// Handlers return errors. A [*Problem] is answered as it is; a domain error is
// turned into one by [Options.Map]; everything else is a 500 without detail.
package httpapi
