package engine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestDescribeErrorNamesWhatFailed: in one bounded line, with the key to change, and without what the worker sent.
func TestDescribeErrorNamesWhatFailed(t *testing.T) {
	call := func(err error) error { return &CallError{Method: "GET", Path: "/v1/models", Err: err} }
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		a    AccessMode
		want string
	}{
		{nil, AccessMode{}, ""},
		{call(dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))), AccessMode{}, "GET /v1/models: connection refused"},
		{call(dial(&net.DNSError{Err: "no such host", Name: "gpu7", IsNotFound: true})), AccessMode{}, "GET /v1/models: no such host gpu7"},
		{call(dial(&net.DNSError{Err: "server misbehaving", Name: "gpu7"})), AccessMode{}, "GET /v1/models: cannot resolve gpu7"},
		{call(dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH))), AccessMode{}, "GET /v1/models: no route to host"},
		{call(context.DeadlineExceeded), AccessMode{}, "GET /v1/models: no answer in time"},
		{call(x509.HostnameError{Host: "gpu7", Certificate: &x509.Certificate{}}), AccessMode{TLS: true}, "GET /v1/models: the worker's certificate is not valid for gpu7 (set server_name)"},
		{call(x509.CertificateInvalidError{Reason: x509.Expired}), AccessMode{TLS: true}, "GET /v1/models: the worker's certificate has expired or is not yet valid"},
		{call(errors.New("remote error: tls: certificate required")), AccessMode{TLS: true}, "GET /v1/models: the worker requires a client certificate (set tls.cert and tls.key)"},
		{call(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x15\x03\x01\x00\x02\x02"`)), AccessMode{}, "GET /v1/models: the answer is not HTTP (the worker uses TLS: write https:// in url)"},
		{call(io.EOF), AccessMode{TLS: true}, "GET /v1/models: connection closed before an answer (if the worker does not use TLS, write http:// in url)"},
		{&StatusError{Method: "POST", Path: "/x", Status: 401, Body: "key sk-1234 is wrong"}, AccessMode{HasKey: true}, "POST /x: status 401 Unauthorized (the worker rejects the configured key: check api_key_file)"},
		{fmt.Errorf("%w: %w", ErrUndetected, &StatusError{Method: "GET", Path: "/v1/models", Status: 403}), AccessMode{}, "GET /v1/models: status 403 Forbidden (the worker requires a key: set api_key_file)"},
		{&StatusError{Method: "GET", Path: "/v1/models", Status: 400, Body: "The plain HTTP request was sent to HTTPS port"}, AccessMode{}, "GET /v1/models: status 400 Bad Request (the worker uses TLS: write https:// in url)"},
		{&StatusError{Method: "GET", Path: "/v1/models", Status: 599, Body: "HTTPS"}, AccessMode{}, "GET /v1/models: status 599"},
		{&url.Error{Op: "parse", URL: "http://w/?key=hunter2", Err: errors.New("invalid")}, AccessMode{}, "invalid"},
		{ErrUndetected, AccessMode{}, ErrUndetected.Error()},
	} {
		if got := DescribeError(c.err, c.a); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	long := DescribeError(call(errors.New(strings.Repeat("x\n\x1b[31m", 200))), AccessMode{})
	if len(long) > maxCauseBytes || strings.ContainsAny(long, "\n\x1b") {
		t.Errorf("a cause of %d bytes: %q", len(long), long)
	}
}
