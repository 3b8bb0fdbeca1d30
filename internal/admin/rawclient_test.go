package admin_test

import (
	"context"
	"net"
	"net/http"
	"testing"
)

// rawClient returns an HTTP client of a socket, for requests that Client cannot send.
func rawClient(t *testing.T, socket string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
