package global

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// A gateway of a region that is in no spec gets no directive and is shown as refused. A gateway that the spec does
// not list in its region is accepted and gets no ticket keys. Both follow a new spec at once.
func TestOnlyDeclaredGatewaysGetTicketKeys(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	atlantis, extra := p.newFakeGateway("atlantis", "ga"), p.newFakeGateway("tokyo", "other")
	testkit.Eventually(t, "the listed gateway has keys, the other one a directive", func() bool {
		d, e := p.gateways["tokyo"].directive.Load(), extra.directive.Load()
		return d != nil && len(d.TicketKeys) > 0 && e != nil && e.SpecVersion == d.SpecVersion
	})
	if n := len(extra.directive.Load().TicketKeys); n != 0 {
		t.Errorf("a gateway that the spec does not list has %d ticket keys", n)
	}
	testkit.Eventually(t, "atlantis is shown as refused", func() bool {
		u, err := p.nodes[0].status.describeUplinks(t.Context())
		if err != nil {
			return false
		}
		for _, c := range u.Children {
			if c.State == admin.UplinkRefused && strings.Contains(c.Error, `region "atlantis" is not in the spec (version 1)`) {
				return true
			}
		}
		return false
	})
	if atlantis.directive.Load() != nil {
		t.Error("atlantis has a directive")
	}
	c, err := admin.Dial("unix://"+p.nodes[0].cfg.AdminSocket, nil)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(text string) {
		t.Helper()
		if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	more := strings.Replace(testSpecText(), "models:", `  - {name: atlantis, place: {city: X, lat: 1, lon: 1}, gateways: [{name: ga, addresses: [127.0.5.1], url: "http://127.0.5.1:8080"}]}
models:`, 1)
	apply(more)
	testkit.Eventually(t, "atlantis has ticket keys", func() bool {
		d := atlantis.directive.Load()
		return d != nil && len(d.TicketKeys) > 0
	})
	apply(testSpecText())
	testkit.Eventually(t, "no node has a session with atlantis", func() bool {
		for _, s := range p.nodes {
			for _, i := range s.parent.Children() {
				if i.Path == (capacity.Path{Region: "atlantis", Instance: "ga"}) {
					return false
				}
			}
		}
		return true
	})
}

// The command makes a new key for all nodes, and with purge leaves no other; both are audited.
func TestAdminRotatesTicketKeys(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	c, err := admin.Dial("unix://"+p.nodes[1].cfg.AdminSocket, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.RotateTickets(t.Context(), admin.TicketsRequest{Reason: "drill"}); err != nil || len(a.Keys) < 2 {
		t.Fatalf("%+v %v", a, err)
	}
	a, err := c.RotateTickets(t.Context(), admin.TicketsRequest{Purge: true, Reason: "gw3 stolen"})
	if err != nil || len(a.Keys) != 1 {
		t.Fatalf("%+v %v", a, err)
	}
	key := p.nodes[1].node.State().TicketKeys[0].Secret
	testkit.Eventually(t, "every gateway has the new key and no other", func() bool {
		for _, g := range p.gateways {
			d := g.directive.Load()
			if d == nil || len(d.TicketKeys) != 1 || string(d.TicketKeys[0]) != string(key) {
				return false
			}
		}
		return true
	})
	audit, err := c.ListAudit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, r := range audit.Records {
		if strings.HasPrefix(r.Action, "tickets") {
			done = append(done, r.Action+": "+r.Reason)
		}
	}
	if got := strings.Join(done, ", "); !strings.Contains(got, "tickets rotate: drill") || !strings.Contains(got, "tickets purge: gw3 stolen") {
		t.Errorf("audited: %q", got)
	}
}

// testMistakes sends every kind of mistake in the testdata of package spec through the admin interface: the answer
// must be the error of the spec's decoder, to the byte, and nothing may be applied.
func (p *testFleet) testMistakes(t *testing.T) {
	mistakes := testkit.ReadFixtures(t, "../internal/spec/testdata/mistakes/*.txtar", 190)
	c := p.adminClient(p.nodes[1])
	before, err := c.GetSpec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range mistakes {
		for _, dry := range []bool{true, false} {
			_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: mistake.File, Text: string(mistake.Text), DryRun: dry})
			var e *admin.Error
			if !errors.As(err, &e) || e.Status != 400 {
				t.Errorf("%s, dry run %v: %v, want a refusal", mistake.Name, dry, err)
				continue
			}
			if e.Error()+"\n" != mistake.Message {
				t.Errorf("%s, dry run %v: the operator reads\n%s\nwant\n%s", mistake.Name, dry, e.Error(), mistake.Message)
			}
		}
	}
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Text: "zone: 1"})
	if err == nil || !strings.Contains(err.Error(), "spec:1:7: ") {
		t.Errorf("a spec without a name: %v", err)
	}
	after, err := c.GetSpec(t.Context())
	if err != nil || after.Version != before.Version || after.Text != before.Text {
		t.Errorf("spec %d became %d, %v", before.Version, after.Version, err)
	}
	t.Logf("%d mistakes came through unchanged", len(mistakes))
}

// TestConflictingWriteIsRetriedOnce: a write by a node that lagged behind is repeated once from the agreed state. A
// write that names its version is not, nor one with a second conflict.
func TestConflictingWriteIsRetriedOnce(t *testing.T) {
	agreed, follower := uint64(5), uint64(4)
	tries, caught := 0, 0
	write := func() error {
		if tries++; follower != agreed {
			return consensus.ErrConflict{Current: agreed}
		}
		return nil
	}
	catchUp := func() error { caught++; follower = agreed; return nil }
	if err := retryAfterConflict(0, write, catchUp); err != nil || tries != 2 || caught != 1 {
		t.Errorf("a lagging follower: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(4, write, catchUp); !errors.As(err, new(consensus.ErrConflict)) || tries != 1 {
		t.Errorf("based on version 4: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(0, write, func() error { return nil }); !errors.As(err, new(consensus.ErrConflict)) || tries != 2 {
		t.Errorf("a second conflict: %v after %d tries", err, tries)
	}
	follower, tries = 4, 0
	if err := retryAfterConflict(0, write, func() error { return consensus.ErrNoLeader }); !errors.Is(err, consensus.ErrNoLeader) || tries != 1 {
		t.Errorf("no leader: %v after %d tries", err, tries)
	}
}

// TestUnknownOutcomeReachesTheOperator: an unknown outcome of a write is reported to the operator's command.
func TestUnknownOutcomeReachesTheOperator(t *testing.T) {
	var e *admin.Error
	if err := toAdminError(consensus.ErrUnknownOutcome); !errors.As(err, &e) || !e.Unknown || e.Status != 503 {
		t.Errorf("%+v", err)
	}
	if err := toAdminError(consensus.ErrNoLeader); !errors.As(err, &e) || e.Unknown {
		t.Errorf("%+v", err)
	}
}
