package local_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local"
)

// announceInstances has the gateway name the zone's live instances.
func (p *gatewayHarness) announceInstances(names ...string) {
	d := uplink.Directive{Index: 1, SpecVersion: 1, Spec: []byte(specText)}
	for _, n := range names {
		d.ZoneInstances = append(d.ZoneInstances, uplink.PeerGateway{Name: n, Endpoint: "127.0.0.1:1"}) // no instance listens there
	}
	p.directive.Store(&d)
	p.parent.PushDirectives()
}

// Workers that another instance serves are neither chosen nor counted here, what runs on them runs on, and what was learned
// of them is kept.
func TestWorkersMoveToAnotherInstanceAndBack(t *testing.T) {
	p := newGatewayHarness(t)
	var workers []*fakeVLLM
	for i := range 4 {
		workers = append(workers, newFakeVLLM(t, fmt.Sprintf("w%d", i+1)))
	}
	a := startAgent(t, p.joinGateway, workers...)
	p.announceInstances("a")
	counted := func() int64 {
		if s := p.latestSummary.Load(); s != nil && s.FindModel("llama-3.1-8b") != nil {
			return s.FindModel("llama-3.1-8b").Ready
		}
		return -1
	}
	testkit.Eventually(t, "all four counted", func() bool { return counted() == 4 })
	for _, w := range workers {
		w.setMode("hold")
	}
	streams := make(chan string, 4)
	for range 4 {
		go func() {
			_, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, streamedChat)
			streams <- fmt.Sprint(text, err)
		}()
	}
	testkit.Eventually(t, "a stream on each worker", func() bool {
		for _, w := range workers {
			if w.running.Load() != 1 {
				return false
			}
		}
		return true
	})
	p.announceInstances("a", "ghost")
	testkit.Eventually(t, "some workers the other's", func() bool { return counted() < 4 })
	n := counted()
	if n == 0 || p.latestSummary.Load().FindModel("llama-3.1-8b").Total != n {
		t.Fatalf("%d workers are counted, of %+v", n, p.latestSummary.Load().FindModel("llama-3.1-8b"))
	}
	for _, w := range workers {
		w.setMode("ok")
		close(w.release)
	}
	for range 4 {
		if text := <-streams; !strings.Contains(text, "[DONE]") {
			t.Errorf("a stream ended with %q", text)
		}
	}
	theirs, rates := map[string]bool{}, map[string]float64{}
	for _, w := range a.Status().Workers {
		if w.Reason == "served by ghost" {
			theirs["us/us-a/"+w.Name], rates[w.Name] = true, w.PrefillRate
		}
	}
	if int64(len(theirs)) != 4-n {
		t.Errorf("%v are shown as the other's, %d are counted", theirs, n)
	}
	for range 8 {
		resp, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, streamedChat)
		if err != nil || resp.StatusCode != 200 || theirs[resp.Header.Get(forward.HeaderRoute)] {
			t.Errorf("%v: served by %v", err, resp)
		}
	}
	p.announceInstances("a")
	testkit.Eventually(t, "all four counted again", func() bool { return counted() == 4 })
	for _, w := range a.Status().Workers {
		if theirs["us/us-a/"+w.Name] && w.PrefillRate != rates[w.Name] {
			t.Errorf("%s returns with a rate of %v, it had %v", w.Name, w.PrefillRate, rates[w.Name])
		}
	}
}

// Where every worker of a model is another instance's, a request is handed back as not started: the gateway takes it there.
func TestRequestForWorkersOfAnotherInstanceIsHandedBack(t *testing.T) {
	p := newGatewayHarness(t)
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, p.joinGateway, w)
	names := []string{"a"}
	for i := range 31 { // one of them has it: the names alone decide
		names = append(names, fmt.Sprintf("ghost%d", i))
	}
	p.announceInstances(names...)
	testkit.Eventually(t, "the worker is another's", func() bool {
		s := p.latestSummary.Load()
		return s != nil && s.FindModel("llama-3.1-8b") != nil && s.FindModel("llama-3.1-8b").Total == 0
	})
	resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, streamedChat)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(forward.HeaderNotStarted) == "" {
		t.Errorf("%v %v %s", err, resp, text)
	}
}

// The door tells siblings apart from gateways: they may ask whether we are there, and nothing else.
func TestPeersMayOnlyAskForTheHeartbeat(t *testing.T) {
	p := newGatewayHarness(t)
	a := startAgent(t, p.joinGateway, newFakeVLLM(t, "w1"))
	id := func(zone string) *identity.Certs {
		return p.issueCerts(identity.ID{TrustDomain: "test.example", Role: identity.RoleLocal, Region: "us", Zone: zone, Name: "b"})
	}
	get := func(c *identity.Certs, path string) (int, string, error) {
		tr := forward.NewTransport(c.ClientTLS(forward.ALPN, nil))
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + a.Addr().String() + path)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = resp.Body.Close() }()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		return resp.StatusCode, b.String(), err
	}
	var seen *local.PeerHeartbeat
	testkit.Eventually(t, "its worker listed", func() bool {
		status, text, err := get(id("us-a"), "/v1/sibling")
		if err != nil || status != 200 {
			t.Fatalf("%d %s %v", status, text, err)
		}
		if seen, err = local.DecodeHeartbeat(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		return len(seen.Workers) == 1 && seen.Workers[0] == "w1" && seen.Instance == "a"
	})
	if _, text, err := get(id("us-a"), fmt.Sprintf("/v1/sibling?have=%d", seen.Version)); err != nil || strings.Contains(text, "w1") {
		t.Errorf("the list that it has is sent again: %s %v", text, err)
	}
	if status, _, err := get(id("us-a"), "/v1/models"); err != nil || status != http.StatusForbidden {
		t.Errorf("a sibling asks for models and gets %d, %v", status, err)
	}
	if resp, _, err := p.postFromGateway(id("us-a"), a, forward.Hop{Tenant: "acme"}, streamedChat); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a sibling sends work and gets %v, %v", resp, err)
	}
	if status, _, err := get(id("us-b"), "/v1/sibling"); err == nil {
		t.Errorf("an instance of another zone gets %d", status)
	}
	if status, _, err := get(p.gateway, "/v1/sibling"); err != nil || status != http.StatusNotFound {
		t.Errorf("a gateway gets %d, %v", status, err)
	}
	if s := p.latestSummary.Load(); s == nil || s.Path != (capacity.Path{Region: "us", Zone: "us-a", Instance: "a"}) {
		t.Errorf("it states %+v", s)
	}
}

// FuzzDecodeHeartbeat: decoding the answer of a sibling is bounded and does not panic for any input.
func FuzzDecodeHeartbeat(f *testing.F) {
	f.Add([]byte(`{"instance":"b","version":"7","workers":["w1","w2"]}`))
	f.Add([]byte(`{"workers":null}`))
	f.Add([]byte(`{"version":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := local.DecodeHeartbeat(bytes.NewReader(b))
		if err == nil && len(s.Workers) > 4096 {
			t.Fatalf("%d workers", len(s.Workers))
		}
	})
}
