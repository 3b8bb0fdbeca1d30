package global

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/ticket"
	"github.com/spillway-lb/spillway/internal/timed"
)

// allAnswerRegion reports whether every live node sends the client to the region.
func (p *testFleet) allAnswerRegion(client, want string) bool {
	for _, s := range p.liveNodes() {
		if answeredRegion(s, client) != want {
			return false
		}
	}
	return true
}

func (p *testFleet) allNearest() bool {
	for want, client := range clientAddrs {
		if !p.allAnswerRegion(client, want) {
			return false
		}
	}
	return true
}

func TestGlobalTierEndToEnd(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	t.Run("nearest", p.testNearest)
	t.Run("why", p.testWhy)
	t.Run("tls", p.testTLS)
	t.Run("redirect", p.testRedirect)
	t.Run("drain", p.testDrain)
	t.Run("drain of what is not there", p.testDrainOfUnlisted)
	t.Run("drain safety", p.testDrainSafety)
	t.Run("drain race", p.testDrainRace)
	t.Run("safety rules", p.testSafetyRules)
	t.Run("directive", p.testDirective)
	t.Run("explain", p.testExplain)
	t.Run("status", p.testStatus)
	t.Run("siblings", p.testUndeclaredGateway)
	t.Run("apply", p.testApply)
	t.Run("mistakes", p.testMistakes)
	t.Run("workerless", p.testWorkerless)
	t.Run("demand", p.testDemand)
	t.Run("heavy network", p.testHeavyHitterPinned)
	t.Run("plans", p.testPlanVerbs)
	t.Run("drain in the diff", p.testDrainDiff)
	t.Run("metrics", p.testMetrics)
	t.Run("agreed", p.testLinearizableReads) // last: a region that was drained comes back by a ramp
}

func (p *testFleet) testNearest(t *testing.T) {
	testkit.Eventually(t, "each client is answered with its own region by every node", p.allNearest)
	addrs, _, err := lookupDNS(p.nodes[0], "tokyo."+testService, 1, clientAddrs["virginia"])
	if err != nil || len(addrs) != 1 || addrs[0] != testGatewayAddrs["tokyo"] {
		t.Errorf("the child name of Tokyo is answered %v, %v", addrs, err)
	}
}

func (p *testFleet) testWhy(t *testing.T) {
	_, texts, err := lookupDNS(p.nodes[1], "_why."+testService, 16, clientAddrs["frankfurt"])
	all := strings.Join(texts, " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"region=frankfurt", "reason=nearest", "rtt_ms=", "wait_ms=", "city=Frankfurt", "plan_epoch="} {
		if !strings.Contains(all, want) {
			t.Errorf("_why is %q, want %q in it", all, want)
		}
	}
	_, texts, err = lookupDNS(p.nodes[1], "_whoami.api.example.", 16, clientAddrs["tokyo"])
	if all := strings.Join(texts, " "); err != nil || !strings.Contains(all, "city=Tokyo") || !strings.Contains(all, "prefix=203.0.113.0/26") {
		t.Errorf("_whoami is %q, %v", all, err)
	}
}

func (p *testFleet) callRedirect(t *testing.T, s *Server, path, key string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.HTTPAddr().String()+path, strings.NewReader(`{"model":"m1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "chat.api.example:8053"
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func (p *testFleet) testRedirect(t *testing.T) {
	resp := p.callRedirect(t, p.nodes[2], "/v1/chat/completions?trace=1&spw=stale&x=2", testAPIKey)
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Fatalf("status %d, location %v, %v", resp.StatusCode, to, err)
	}
	// Loopback is a demo location close to Virginia.
	if to.Scheme != "http" || to.Host != "virginia.chat.api.example:8080" || to.Path != "/v1/chat/completions" {
		t.Errorf("redirected to %s", to)
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		t.Error("a redirect with a ticket may be cached")
	}
	if !strings.HasPrefix(to.RawQuery, "trace=1&x=2&spw=") || len(to.Query()["spw"]) != 1 {
		t.Errorf("query is %q", to.RawQuery)
	}
	got, err := ticket.OpenTicket(p.ticketKeys(t), to.Query().Get("spw"), time.Now())
	if err != nil || got.Tenant != "acme" || got.Region != "virginia" || got.Service != testService {
		t.Errorf("ticket is %+v, %v", got, err)
	}
	if left := time.Until(got.Expires); left > ticket.Lifetime || ticket.Lifetime != 30*time.Second || got.Client != "" {
		t.Errorf("the ticket is good for %s, for %q", left, got.Client)
	}
	resp = p.callRedirect(t, p.nodes[0], "/v1/models", testEUKey)
	if to := resp.Header.Get("Location"); !strings.HasPrefix(to, "http://frankfurt.chat.api.example:8080/v1/models?spw=") {
		t.Errorf("a tenant that must stay in the EU is sent to %s", to)
	}
	for path, want := range map[string]int{"/v1/models": 401, "/other": 401} {
		if resp := p.callRedirect(t, p.nodes[0], path, "sk-wrong"); resp.StatusCode != want || resp.Header.Get("Location") != "" {
			t.Errorf("%s with a wrong key is answered %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// ticketKeys returns the ticket keys that a gateway received.
func (p *testFleet) ticketKeys(t *testing.T) [][]byte {
	t.Helper()
	testkit.Eventually(t, "the gateway holds ticket keys", func() bool {
		d := p.gateways["tokyo"].directive.Load()
		return d != nil && len(d.TicketKeys) > 0
	})
	return p.gateways["tokyo"].directive.Load().TicketKeys
}

func (p *testFleet) testDrain(t *testing.T) {
	// The write goes to a follower, so that it is forwarded.
	follower := p.nodes[0]
	if follower.IsLeader() {
		follower = p.nodes[1]
	}
	c := p.adminClient(follower)
	out, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "frankfurt", Reason: "test"})
	if err != nil || len(out.Drains) != 1 || out.Drains[0].Path != "frankfurt" {
		t.Fatalf("drain: %+v, %v", out, err)
	}
	if got := answeredRegion(follower, clientAddrs["frankfurt"]); got != "virginia" {
		t.Errorf("right after the answer to drain the node sends Frankfurt to %s", got)
	}
	moved := testkit.Eventually(t, "every node sends Frankfurt's clients to Virginia", func() bool { return p.allAnswerRegion(clientAddrs["frankfurt"], "virginia") })
	for name := range clientAddrs {
		if name != "frankfurt" && !p.allAnswerRegion(clientAddrs[name], name) {
			t.Errorf("clients of %s moved though it is not drained", name)
		}
	}
	if _, err := c.EndDrain(t.Context(), "frankfurt", "test"); err != nil {
		t.Fatal(err)
	}
	back := testkit.Eventually(t, "Frankfurt's clients are back", func() bool { return p.allAnswerRegion(clientAddrs["frankfurt"], "frankfurt") })
	timed.AssertWithin(t, "drain shown everywhere", moved, time.Second)
	timed.AssertWithin(t, "undrain shown everywhere", back, time.Second)
	// This holds after the next plan too.
	epoch := follower.snapshot.Load().state.PlanEpoch
	testkit.Eventually(t, "the planner has answered the drains", func() bool { return len(follower.snapshot.Load().Plan.Without) == 0 })
	if !p.allNearest() {
		t.Errorf("after plan %d clients are not at their nearest", epoch)
	}
	_, err = c.StartDrain(t.Context(), admin.DrainRequest{Path: "atlantis"})
	var e *admin.Error
	if !errors.As(err, &e) || e.Status != 400 {
		t.Errorf("a drain of nowhere: %v", err)
	}
	for _, name := range []string{"frankfurt", "tokyo", "virginia"} {
		if out, err = c.StartDrain(t.Context(), admin.DrainRequest{Path: name, ForMS: 60000, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if out.Note == "" {
		t.Error("no note that every region is drained")
	}
	testkit.Eventually(t, "with every region drained each client is still answered with its own", p.allNearest)
	for _, name := range []string{"frankfurt", "tokyo", "virginia"} {
		if _, err = c.EndDrain(t.Context(), name, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", ForMS: 300}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a drain with an end ends", func() bool {
		return len(follower.node.State().Drains) == 0 && p.allAnswerRegion(clientAddrs["tokyo"], "tokyo")
	})
}

func (p *testFleet) testDirective(t *testing.T) {
	if _, err := p.adminClient(p.nodes[0]).StartDrain(t.Context(), admin.DrainRequest{Path: "virginia/a"}); err != nil {
		t.Fatal(err)
	}
	g := p.gateways["tokyo"]
	testkit.Eventually(t, "a gateway receives a zone's drain", func() bool {
		d := g.directive.Load()
		return d != nil && len(d.Drains) == 1 && d.Drains[0].Path == "virginia/a"
	})
	d := g.directive.Load()
	if d.SpecVersion == 0 || len(d.Spec) == 0 || len(d.Peers) != 2 || d.Peers[0].Region != "virginia" {
		t.Fatalf("directive has spec %d of %d bytes and %d peers", d.SpecVersion, len(d.Spec), len(d.Peers))
	}
	peer := d.Peers[0]
	if peer.Summary == nil || peer.Summary.FindModel("m1") == nil || peer.RTT < 100*time.Millisecond || peer.Age > 2*time.Second {
		t.Errorf("peer is %+v", peer)
	}
	if len(peer.Gateways) != 1 || peer.Gateways[0].Endpoint != "127.0.0.1:9" {
		t.Errorf("peer's gateways are %+v", peer.Gateways)
	}
	if _, err := p.adminClient(p.nodes[0]).EndDrain(t.Context(), "virginia/a", "test"); err != nil {
		t.Fatal(err)
	}
}

func (p *testFleet) testExplain(t *testing.T) {
	c := p.adminClient(p.nodes[1])
	out, err := c.ExplainRequest(t.Context(), admin.ExplainQuery{From: clientAddrs["tokyo"], Model: "m1", Tenant: "eurocorp"})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Records) != 3 || out.Records[1].Tier != "regional" || out.Records[1].Node != "frankfurt" || out.Records[1].Query != "m1" {
		t.Fatalf("records are %+v", out.Records)
	}
	rec := out.Records[0]
	if rec.Chosen != "frankfurt" || len(rec.Candidates) != 3 || rec.Candidates[2].IneligibleReason != "residency" {
		t.Fatalf("global record is %+v", rec)
	}
	terms := rec.Candidates[2].Terms
	if len(terms) != 3 || terms[0].Name != "rtt" || terms[1].Name != "wait" || terms[2].Name != "bias" || terms[0].Seconds <= 0 {
		t.Errorf("terms are %+v", terms)
	}
	for _, bad := range []admin.ExplainQuery{{From: "x"}, {Model: "m1"}, {From: "192.0.2.1", Model: "none"}, {From: "192.0.2.1", Tenant: "none"}, {From: "192.0.2.1", Service: "none"}} {
		var e *admin.Error
		if _, err := c.ExplainRequest(t.Context(), bad); !errors.As(err, &e) || e.Status != 400 || e.Hint == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func (p *testFleet) testStatus(t *testing.T) {
	p.gateways["tokyo"].muted.Store(true)
	defer p.gateways["tokyo"].muted.Store(false)
	begun := time.Now()
	st, err := p.adminClient(p.nodes[0]).GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timed.AssertWithin(t, "status with one region mute", time.Since(begun), 1500*time.Millisecond)
	if st.Raft == nil || len(st.Raft.Voters) != 3 || st.Raft.Leader == "" || st.SpecVersion == 0 || len(st.Regions) != 3 {
		t.Fatalf("status is %+v", st)
	}
	for _, r := range st.Regions {
		if r.State != admin.StateFresh || len(r.Models) != 1 || r.Models[0].Ready != 8 || len(r.Gateways) != 1 || r.Gateways[0].State != admin.StateFresh {
			t.Errorf("region is %+v", r)
		}
		if mute := r.Name == "tokyo"; mute != (r.Note != "") || mute == (len(r.Zones) == 1) {
			t.Errorf("region %s has note %q and %d zones", r.Name, r.Note, len(r.Zones))
		}
	}
}

func (p *testFleet) testApply(t *testing.T) {
	c := p.adminClient(p.nodes[2])
	now, err := c.GetSpec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	away := strings.Replace(testSpecText(), "name: tokyo, place", "name: tokyo, bias_ms: 900, place", 1)
	out, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: away, DryRun: true})
	if err != nil || !out.DryRun || out.Version != now.Version || len(out.Changes) != 1 || !strings.Contains(out.Changes[0].Path, "bias_ms") {
		t.Fatalf("dry run: %+v, %v", out, err)
	}
	moved := 0.0
	for _, m := range out.Moves {
		moved += m.Share
		if m.From != "tokyo" || m.Service != testService {
			t.Errorf("a bias on Tokyo would move %+v", m)
		}
	}
	if moved < 0.05 || moved > 0.7 || !p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") {
		t.Errorf("a dry run would move %.2f of the cells", moved)
	}
	out, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: away, BasedOn: now.Version})
	if err != nil || out.Version != now.Version+1 {
		t.Fatalf("apply: %+v, %v", out, err)
	}
	if again, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: away}); err != nil || again.Version != out.Version || len(again.Changes) != 0 {
		t.Errorf("applying what is in force makes %+v (%v), want version %d unchanged", again, err, out.Version)
	}
	testkit.Eventually(t, "Tokyo's clients leave", func() bool {
		for _, s := range p.liveNodes() {
			if answeredRegion(s, clientAddrs["tokyo"]) == "tokyo" {
				return false
			}
		}
		return true
	})
	var e *admin.Error
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: testSpecText(), BasedOn: now.Version})
	if !errors.As(err, &e) || e.Status != 409 {
		t.Errorf("a change based on an old version: %v", err)
	}
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: "zone: {nmae: x}"})
	if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(e.Message, "s.yaml:1") {
		t.Errorf("a bad spec: %v", err)
	}
	if _, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: testSpecText()}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "Tokyo's clients return", func() bool { return p.allAnswerRegion(clientAddrs["tokyo"], "tokyo") })
}

func (p *testFleet) testWorkerless(t *testing.T) {
	g := p.gateways["virginia"]
	none := summaryWithCapacity(0, 0)
	none.Models[0].Total = 0 // with eight unhealthy ones, a plan made just then keeps the region out for a minute: steer.RegionHealthGuard
	g.summary.Store(none)
	g.child.SummarizeNow()
	testkit.Eventually(t, "a region without workers gets no client", func() bool { return p.allAnswerRegion(clientAddrs["virginia"], "frankfurt") })
	g.summary.Store(summaryWithCapacity(10000, 8))
	g.child.SummarizeNow()
	testkit.Eventually(t, "a region with workers gets its clients back", func() bool { return p.allAnswerRegion(clientAddrs["virginia"], "virginia") })
}

func (p *testFleet) testDemand(t *testing.T) {
	s := *summaryWithCapacity(10000, 8)
	cell := p.nodes[0].cfg.Atlas.Locate(netip.MustParseAddr(clientAddrs["virginia"])).Cell
	s.Demand = []capacity.CellDemand{{Service: strings.TrimSuffix(testService, "."), Model: "m1", Cell: geo.CellName(cell), TokensPerSec: 17000}}
	g := p.gateways["virginia"]
	g.summary.Store(&s)
	g.child.SummarizeNow()
	// 17000 tokens/s against 8500 that may be filled: half of the cell must go to Frankfurt.
	testkit.Eventually(t, "the plan splits a cell whose demand is twice its region's capacity", func() bool {
		svc := p.nodes[1].snapshot.Load().Plan.FindService(testService)
		if svc == nil || len(svc.Rows) != 1 || len(svc.Rows[0].Shares) != 2 {
			return false
		}
		w := svc.Rows[0].Shares[0].Weight
		return w > steer.WeightSum*45/100 && w < steer.WeightSum*55/100
	})
	g.summary.Store(summaryWithCapacity(10000, 8))
	g.child.SummarizeNow()
}

func (p *testFleet) testMetrics(t *testing.T) {
	families, err := p.nodes[0].cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	sum := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, least := range map[string]float64{
		"spillway_global_dns_answers_total": 10, "spillway_global_dns_fast_answers_total": 10, "spillway_global_redirects_total": 3, "spillway_global_region_up": 3,
		"spillway_global_summaries_total": 10, "spillway_global_plan_epoch": 1, "spillway_global_spec_version": 2,
	} {
		if sum[name] < least {
			t.Errorf("%s adds up to %v, want at least %v", name, sum[name], least)
		}
	}
}

// floodQueries queries a node until stopped, and counts failures.
func floodQueries(ctx context.Context, s *Server, client string) (asked, failed *atomic.Int64, done *sync.WaitGroup) {
	asked, failed, done = new(atomic.Int64), new(atomic.Int64), new(sync.WaitGroup)
	done.Go(func() {
		for ctx.Err() == nil {
			asked.Add(1)
			if addrs, _, err := lookupDNS(s, testService, 1, client); err != nil || len(addrs) == 0 {
				failed.Add(1)
			}
		}
	})
	return asked, failed, done
}

func TestAnswersSurviveLossOfRegionsLeaderAndQuorum(t *testing.T) {
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client has its own region", p.allNearest)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// Every gateway of a region is lost.
	p.gateways["tokyo"].stopChild()
	took := testkit.Eventually(t, "a lost region's clients go elsewhere", func() bool {
		for _, s := range p.liveNodes() {
			if r := answeredRegion(s, clientAddrs["tokyo"]); r != "virginia" && r != "frankfurt" {
				return false
			}
		}
		return true
	})
	timed.AssertWithin(t, "a region's loss shown everywhere", took, 2*time.Second)

	// The leader dies.
	old := p.awaitLeader()
	var rest []*Server
	for _, s := range p.liveNodes() {
		if s != old {
			rest = append(rest, s)
		}
	}
	asked, failed, done := floodQueries(ctx, rest[0], clientAddrs["frankfurt"])
	p.stopNode(old)
	took = testkit.Eventually(t, "another node leads", func() bool { return rest[0].IsLeader() || rest[1].IsLeader() })
	timed.AssertWithin(t, "another node leads", took, 5*time.Second)
	if _, err := p.adminClient(rest[0]).StartDrain(t.Context(), admin.DrainRequest{Path: "frankfurt"}); err != nil {
		t.Fatalf("with two of three nodes nothing can be changed: %v", err)
	}
	testkit.Eventually(t, "a drain holds on the two that are left", func() bool { return p.allAnswerRegion(clientAddrs["frankfurt"], "virginia") })

	// Quorum is lost.
	p.stopNode(rest[1])
	if got := answeredRegion(rest[0], clientAddrs["virginia"]); got != "virginia" {
		t.Errorf("without a quorum a client of Virginia is sent to %s", got)
	}
	// The node's own observations still count: Virginia is lost, and of the live regions only the drained one is left.
	p.gateways["virginia"].stopChild()
	testkit.Eventually(t, "a loss is masked without a quorum", func() bool { return answeredRegion(rest[0], clientAddrs["virginia"]) == "frankfurt" })
	p.gateways["frankfurt"].stopChild()
	testkit.Eventually(t, "with every region lost clients are still answered", func() bool {
		_, texts, err := lookupDNS(rest[0], "_why."+testService, 16, clientAddrs["virginia"])
		return err == nil && strings.Contains(strings.Join(texts, " "), "reason=all_lost")
	})
	testkit.Eventually(t, "enough queries were sent", func() bool { return asked.Load() >= 20 })
	cancel()
	done.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d of %d queries failed", failed.Load(), asked.Load())
	}
	t.Logf("%d queries, none failed", asked.Load())
}
