package regional_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// The local tier receives the remaining time of a client's deadline, from either header.
func TestDeadlineFromEitherHeaderIsForwarded(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	l := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for _, name := range []string{forward.HeaderClientDeadline, forward.HeaderRequestTimeout} {
		resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: askBody, header: http.Header{name: {"60000"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
		}
		got := (<-l.requests).Header.Get(forward.HeaderDeadlineMS)
		if ms, err := strconv.Atoi(got); err != nil || ms < 1 || ms > 60000 {
			t.Errorf("%s: the local is told %q", name, got)
		}
	}
}
