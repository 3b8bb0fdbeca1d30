package local_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// At the deadline of a zone's drain, what streams ends with an error event, what has no byte yet is handed back to the
// gateway, and nothing new is taken; until then, and once the drain is over, everything is served.
func TestDrainedZoneEndsItsAnswersAtTheDeadline(t *testing.T) {
	p := newPlanet(t)
	w1 := newVLLM(t, "w1")
	a := start(t, p.join, w1)
	text := strings.Replace(specText, "policy: least_connections", "policy: least_connections, health: {drain_deadline: 2s}", 1)
	p.directive.Store(&uplink.Directive{Index: 5, SpecVersion: 1, Spec: []byte(text)})
	p.parent.Wake()
	hop := relay.Hop{RequestID: "r1", Tenant: "acme", RetriesLeft: 1}
	eventually(t, "the spec in force", func() bool { return a.Status().Models != nil && p.latest.Load() != nil })

	type answer struct {
		resp *http.Response
		text string
		at   time.Time
	}
	var begun atomic.Int64
	send := func(body string) chan answer {
		c := make(chan answer, 1)
		go func() {
			resp, text, err := p.follow(p.gateway, a, hop, body, func() { begun.Add(1) })
			if err != nil {
				t.Error(err)
			}
			c <- answer{resp, text, time.Now()}
		}()
		return c
	}
	w1.set("endless")
	streaming := send(streamed)
	eventually(t, "a stream under way", func() bool { return begun.Load() == 1 })
	w1.set("stall")
	silent := send(streamed)
	eventually(t, "a request without a byte", func() bool { return w1.running.Load() == 2 })

	drained := time.Now()
	p.directive.Store(&uplink.Directive{Index: 6, SpecVersion: 1, Spec: []byte(text), Drains: []uplink.Drain{{Path: "us/us-a"}}})
	p.parent.Wake()
	eventually(t, "the zone draining", func() bool { return p.latest.Load().Draining })
	w1.set("ok")
	if got := <-send(streamed); time.Since(drained) < 2*time.Second && got.resp.StatusCode != http.StatusOK {
		t.Errorf("before the deadline: %d %q", got.resp.StatusCode, got.text)
	}

	if got := <-streaming; !strings.Contains(got.text, `"upstream_lost"`) || got.at.Sub(drained) < 1900*time.Millisecond {
		t.Errorf("the stream ended after %v with %q", got.at.Sub(drained), got.text)
	}
	if got := <-silent; got.resp.Header.Get(relay.HeaderNotStarted) == "" {
		t.Errorf("the request without a byte got %d %v %q", got.resp.StatusCode, got.resp.Header, got.text)
	}
	if got := <-send(streamed); got.resp.StatusCode != http.StatusServiceUnavailable || got.resp.Header.Get(relay.HeaderNotStarted) == "" {
		t.Errorf("after the deadline: %d %v %q", got.resp.StatusCode, got.resp.Header, got.text)
	}
	p.directive.Store(&uplink.Directive{Index: 7, SpecVersion: 1, Spec: []byte(text)})
	p.parent.Wake()
	eventually(t, "the zone serving again", func() bool { return (<-send(streamed)).resp.StatusCode == http.StatusOK })
}
