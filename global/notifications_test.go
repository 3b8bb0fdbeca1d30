package global

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/global/notify"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// webhookLog collects what a webhook receives.
type webhookLog struct {
	mu     sync.Mutex
	events []notify.Event
}

func (l *webhookLog) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var e notify.Event
	b, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(b, &e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// list returns the types and subjects of the events, with the nodes that sent them.
func (l *webhookLog) list() (out, from []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		out, from = append(out, e.Type+" "+e.Subject), append(from, e.Node)
	}
	return out, from
}

// TestLeaderNotifiesOnce drains a zone in a cluster of three nodes with the same webhook: one of them sends each event, once, also when
// another node leads afterwards.
func TestLeaderNotifiesOnce(t *testing.T) {
	t.Parallel()
	log := &webhookLog{}
	srv := httptest.NewServer(log)
	t.Cleanup(srv.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newTestFleetWith(t, testSpecText(), func(c *Config) {
		c.Notifications = []notify.Endpoint{{Name: "hook", URL: srv.URL, SecretFile: secret, Events: notify.EventTypes()[:6]}}
	})
	p.awaitAllRegions()
	testkit.Eventually(t, "all nodes watch the fleet", func() bool {
		for _, n := range p.nodes {
			if n.notifications.observed.Load() == 0 {
				return false
			}
		}
		return true
	})
	c := p.adminClient(p.nodes[1])
	drained := func(path string) {
		t.Helper()
		testkit.Eventually(t, path+" is drained", func() bool {
			_, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: path, Force: true, Replace: true, Reason: "switches"})
			return err == nil
		})
		testkit.Eventually(t, "a webhook gets the drain of "+path, func() bool {
			out, _ := log.list()
			return slices.Contains(out, "drain_begun "+path)
		})
		for _, n := range p.nodes {
			seen := n.notifications.observed.Load()
			testkit.Eventually(t, "each node has seen it and knows that the leader has sent it", func() bool {
				return n.notifications.observed.Load() > seen+1 && n.notifications.unsent.Load() == 0
			})
		}
	}
	drained("tokyo")
	leader := func() (name string) {
		for _, n := range p.nodes {
			if n.node.IsLeader() {
				name = n.cfg.Name
			}
		}
		return name
	}
	before := leader()
	testkit.Eventually(t, "another node leads", func() bool {
		_, _ = c.TransferLeadership(t.Context(), admin.LeaderRequest{}) // fails while the cluster elects
		now := leader()
		return now != "" && now != before
	})
	drained("virginia")
	out, from := log.list()
	if len(out) != 2 || from[0] == from[1] {
		t.Errorf("events %v of nodes %v, want each drain once and from two leaders", out, from)
	}
	a, err := c.TestNotifications(t.Context(), admin.NotifyTestRequest{})
	if err != nil || len(a.Results) != 1 || a.Results[0].Error != "" || a.Results[0].Endpoint != "hook" {
		t.Errorf("test %+v, %v", a, err)
	}
	if _, err := c.TestNotifications(t.Context(), admin.NotifyTestRequest{Endpoint: "other"}); err == nil {
		t.Error("a test of an unknown webhook succeeds")
	}
}
