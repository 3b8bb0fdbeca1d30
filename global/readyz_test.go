package global

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
)

// verbose is what a node answers to /readyz?verbose.
func verbose(t *testing.T, s *Server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Admin().MetricsAddr().String()+"/readyz?verbose", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNodeSaysWhatItRunsFrom: where plan and capacity come from, and how old each is, to the tenth of a second.
func TestNodeSaysWhatItRunsFrom(t *testing.T) {
	frame := stillView(t).frame
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		says := func(want ...string) {
			t.Helper()
			var lines []string
			for _, b := range s.basis() {
				lines = append(lines, b.String())
			}
			if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("it says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		}
		says("plan from none: no spec is in force")

		in := newIngest(func() {})
		begun := time.Now()
		look := func(from origin, stale bool) {
			now := time.Now()
			v := newView(frame, &consensus.State{PlanEpoch: 7}, in.view(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
			v.planSince, v.from, v.stale = begun, from, stale
			s.view.Store(v)
		}
		look(firstState, true)
		time.Sleep(1500 * time.Millisecond)
		says("plan from file, 1.5s old: the spec file, on which nobody has agreed; not confirmed by a leader",
			"capacity from none: virginia was never heard", "capacity from none: frankfurt was never heard", "capacity from none: tokyo was never heard")

		hear := func(region string) {
			c := capacityOf(10_000, 8)
			c.Path, c.Boot, c.Seq = capacity.Path{Region: region, Instance: "gw"}, 1, 1
			in.summary(identity.ID{}, c)
		}
		hear("virginia")
		time.Sleep(800 * time.Millisecond)
		hear("tokyo")
		look(savedState, false)
		says("plan from disk, 2.3s old: spec v1, plan 7, what was agreed when this node wrote it down",
			"capacity from uplink, 800ms old: virginia is stale", "capacity from none: frankfurt was never heard", "capacity from uplink, 0s old: tokyo is fresh")

		time.Sleep(time.Minute)
		look(agreedState, true)
		time.Sleep(200 * time.Millisecond) // what a view says ages until the next
		says("plan from raft, 1m2.5s old: spec v1, plan 7; not confirmed by a leader",
			"capacity from uplink, 1m1s old: virginia is lost, its last words are used where nothing else is left",
			"capacity from none: frankfurt was never heard",
			"capacity from uplink, 1m0.2s old: tokyo is lost, its last words are used where nothing else is left")
	})
}

// TestReadyMeansRedirectsToo: a node that has agreed on a spec and not yet on a key would answer calls with 503; one that answers
// from its file has no key to wait for, and its names must go on.
func TestReadyMeansRedirectsToo(t *testing.T) {
	frame, now := stillView(t).frame, time.Now()
	key := []consensus.Key{{Secret: []byte("k"), At: now}}
	for _, c := range []struct {
		from  origin
		keys  []consensus.Key
		ready bool
	}{{agreedState, nil, false}, {agreedState, key, true}, {firstState, nil, true}, {savedState, nil, true}} {
		s := &Server{}
		if s.Ready() == nil {
			t.Error("a node without a spec is ready")
		}
		v := newView(frame, &consensus.State{TicketKeys: c.keys}, newIngest(func() {}).view(now), &quorum{self: "g1", voters: []string{"g1"}}, now, true)
		v.from = c.from
		s.view.Store(v)
		if err := s.Ready(); (err == nil) != c.ready {
			t.Errorf("with a state from %v and %d keys: %v", c.from, len(c.keys), err)
		}
	}
}
