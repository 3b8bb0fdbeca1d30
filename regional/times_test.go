package regional_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/spillway-lb/spillway/internal/relay"
)

// However a client names its deadline, the local tier is told what is left of it.
func TestDeadlineOfEitherHeaderGoesOn(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	for _, name := range []string{relay.HeaderClientDeadline, relay.HeaderRequestTimeout} {
		resp, body := w.ask(g, call{key: "key-acme", body: ask, header: http.Header{name: {"60000"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, body)
		}
		got := (<-l.hits).Header.Get(relay.HeaderDeadlineMS)
		if ms, err := strconv.Atoi(got); err != nil || ms < 1 || ms > 60000 {
			t.Errorf("%s: the local is told %q", name, got)
		}
	}
}
