// Package e2e drives the real binaries of the whole hub, started as a local stack of their own, from
// outside: HTTP in, Kafka and webhooks out, rows in Postgres at the end.
package e2e
