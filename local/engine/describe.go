package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// CallError is a failed call to a worker: no usable answer was received.
type CallError struct {
	Method, Path string
	Err          error
}

func (e *CallError) Error() string { return fmt.Sprintf("asking %s: %v", e.Path, e.Err) }

// Unwrap returns the underlying error.
func (e *CallError) Unwrap() error { return e.Err }

// ErrNoModel means that a worker lists no model.
var ErrNoModel = errors.New("no model listed")

// AccessMode is how the worker is accessed, on which the likely cause of an error depends.
type AccessMode struct {
	// TLS: the worker's URL is https.
	TLS bool
	// HasKey: requests carry a configured credential.
	HasKey bool
}

// maxCauseBytes bounds a description, in bytes.
const maxCauseBytes = 240

// DescribeError describes a failed call in one line for operators: the method and path, what failed, and the key of
// the worker's entry to change where one is likely at fault. It contains no text that the worker sent.
func DescribeError(err error, a AccessMode) string {
	var status *StatusError
	var call *CallError
	what := ""
	switch {
	case err == nil:
		return ""
	case errors.As(err, &status):
		what = status.Method + " " + status.Path + ": " + status.describeStatus(a)
	case errors.As(err, &call):
		what = call.Method + " " + call.Path + ": " + describeFailure(call.Err, a)
	case errors.Is(err, ErrUndetected):
		what = ErrUndetected.Error()
	default:
		what = describeFailure(err, a)
	}
	what = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, what)
	return what[:min(len(what), maxCauseBytes)]
}

func (e *StatusError) describeStatus(a AccessMode) string {
	text := strings.TrimSpace(fmt.Sprintf("status %d %s", e.Status, http.StatusText(e.Status)))
	switch {
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		if a.HasKey {
			return text + " (the worker rejects the configured key: check api_key_file)"
		}
		return text + " (the worker requires a key: set api_key_file)"
	case e.Status == http.StatusBadRequest && !a.TLS && strings.Contains(e.Body, "HTTPS"):
		return text + hintHTTPS
	}
	return text
}

// Hints for a URL with the wrong scheme.
const (
	hintHTTPS = " (the worker uses TLS: write https:// in url)"
	hintHTTP  = " (the worker does not use TLS: write http:// in url)"
)

// describeFailure describes the failure of a connection or of an answer.
func describeFailure(err error, a AccessMode) string {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		file      *fs.PathError
		network   net.Error
		address   *url.Error
		syntax    *json.SyntaxError
		form      *json.UnmarshalTypeError
	)
	if errors.As(err, &address) {
		err = address.Err // an address may contain what a client wrote
	}
	text := err.Error()
	switch {
	case errors.As(err, &file): // a credential's file: the key precedes it
		return text
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host " + dns.Name
	case errors.As(err, &dns):
		return "cannot resolve " + dns.Name
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "TLS handshake failed" + hintHTTP
	case errors.As(err, &authority):
		return "the worker's certificate is signed by an unknown authority (set tls.ca)"
	case errors.As(err, &host):
		return "the worker's certificate is not valid for " + host.Host + " (set server_name)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the worker's certificate has expired or is not yet valid"
	case a.TLS && (strings.Contains(text, "tls: certificate required") || strings.Contains(text, "tls: bad certificate")):
		return "the worker requires a client certificate (set tls.cert and tls.key)"
	case !a.TLS && strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return "the answer is not HTTP" + hintHTTPS
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case errors.As(err, &syntax), errors.As(err, &form):
		return "the answer is not JSON of the expected form"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to host"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		if a.TLS {
			return "connection closed before an answer (if the worker does not use TLS, write http:// in url)"
		}
		return "connection closed before an answer (if the worker uses TLS, write https:// in url)"
	}
	return text
}
