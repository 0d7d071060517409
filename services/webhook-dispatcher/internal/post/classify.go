package post

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"apipay.io/hub/pkg/webhook"
)

// Class says how an attempt failed.
type Class string

// The classes. A class is part of the API's attempts: it names the receiver's fault and shows nothing of our network.
const (
	ClassDNS            Class = "dns"             // no such name, or its servers do not answer
	ClassBlocked        Class = "blocked"         // blocked by policy
	ClassRefused        Class = "refused"         // the connection was refused
	ClassConnectTimeout Class = "connect_timeout" // no answer to the connection attempt
	ClassConnect        Class = "connect"         // no route, or the connection broke while it was made
	ClassTLSExpired     Class = "tls_expired"
	ClassTLSName        Class = "tls_name"
	ClassTLSUntrusted   Class = "tls_untrusted"
	ClassTLS            Class = "tls"
	ClassTimeout        Class = "timeout"  // connected, but no answer within the limit
	ClassReset          Class = "reset"    // the connection broke before an answer
	ClassProtocol       Class = "protocol" // the answer is not HTTP
	ClassRedirect       Class = "redirect"
	ClassStatus         Class = "status"
)

// IsUnreachable says that nobody answered: what the breaker counts.
func (c Class) IsUnreachable() bool {
	switch c {
	case ClassDNS, ClassRefused, ClassConnectTimeout, ClassConnect, ClassTimeout:
		return true
	case ClassBlocked, ClassTLSExpired, ClassTLSName, ClassTLSUntrusted, ClassTLS, ClassReset, ClassProtocol, ClassRedirect, ClassStatus:
	}
	return false
}

// oursError is a failure of our own resolver or proxy.
type oursError struct{ err error }

func (e *oursError) Error() string { return e.err.Error() }
func (e *oursError) Unwrap() error { return e.err }

func classOfStatus(status int, location string) Class {
	switch {
	case status >= 200 && status <= 299:
		return ""
	case status >= 300 && status <= 399 && status != http.StatusNotModified:
		return ClassRedirect
	case status == http.StatusNotModified && location != "":
		return ClassRedirect
	}
	return ClassStatus
}

func classOf(err error, at phase) Class {
	var dnsErr *net.DNSError
	switch {
	case errors.Is(err, webhook.ErrBlocked), errors.Is(err, webhook.ErrURLInvalid):
		return ClassBlocked
	case errors.As(err, &dnsErr):
		return ClassDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return ClassRefused
	}
	if class := classOfTLS(err); class != "" {
		return class
	}
	if isTimeout(err) {
		switch at {
		case phaseDNS:
			return ClassDNS
		case phaseConnect:
			return ClassConnectTimeout
		case phaseStart, phaseTLS, phaseExchange:
		}
		return ClassTimeout
	}
	switch at {
	case phaseConnect:
		return ClassConnect
	case phaseTLS:
		return ClassTLS
	case phaseStart, phaseDNS, phaseExchange:
	}
	text := err.Error()
	if strings.Contains(text, "malformed") || strings.Contains(text, "exceeded") || strings.Contains(text, "invalid") ||
		strings.Contains(text, "informational") {
		return ClassProtocol
	}
	return ClassReset
}

func classOfTLS(err error) Class {
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		return ClassTLSName
	case errors.As(err, &unknown):
		return ClassTLSUntrusted
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return ClassTLSExpired
	case errors.As(err, &invalid), errors.As(err, &verification), errors.As(err, &alert), errors.As(err, &record):
		return ClassTLS
	}
	return ""
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &netErr) && netErr.Timeout()
}

// nonsense is where a Retry-After stops being a wish to be spared: 999999 seconds is one, 10^12 is none.
const nonsense = 365 * 24 * time.Hour

// retryAfter reads what a 429 or 503 asks for, in seconds or as an HTTP date; 0 for nothing usable.
func retryAfter(response *http.Response, now time.Time) time.Duration {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	text := strings.TrimSpace(response.Header.Get("Retry-After"))
	var wait time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	if wait <= 0 || wait > nonsense {
		return 0
	}
	return wait
}
