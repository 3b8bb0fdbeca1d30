package global

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// largeSpec has 10,000 objects in addition to its three regions: tenants with a key and a limit each, models and
// aliases. Versions differ in the tenants' weight.
func largeSpec(weight int) string {
	const tenants, models, aliases = 9000, 100, 900
	var out strings.Builder
	head, _, _ := strings.Cut(testSpecText(), "models:")
	out.WriteString(head + "models:\n")
	for i := range models {
		fmt.Fprintf(&out, "  - {name: m%d}\n", i+1)
	}
	out.WriteString("aliases:\n")
	for i := range aliases {
		fmt.Fprintf(&out, "  - {name: a%d, targets: [{model: m%d, weight: 9}, {model: m%d, weight: 1}]}\n", i, i%models+1, (i+1)%models+1)
	}
	out.WriteString("tenants:\n")
	for i := range tenants {
		fmt.Fprintf(&out, "  - {name: t%d, keys: [%q], weight: %d, limits: {requests_per_minute: %d}}\n", i, spec.HashKey(fmt.Sprintf("sk-large-%024d", i)), 1+i%weight, 100+i)
	}
	out.WriteString("steering: {interval: 200ms, ramp: 0s}\n")
	return out.String()
}

func decodeSpecText(tb testing.TB, text string) *spec.Spec {
	tb.Helper()
	s, err := spec.Decode("large.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func BenchmarkLargeDecode(b *testing.B) {
	text := largeSpec(2)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		decodeSpecText(b, text)
	}
}

func BenchmarkLargeEncode(b *testing.B) {
	s := decodeSpecText(b, largeSpec(2))
	for b.Loop() {
		spec.Encode(s)
	}
	b.ReportMetric(float64(len(spec.Encode(s))), "bytes")
}

func BenchmarkLargeDiff(b *testing.B) {
	one, two := decodeSpecText(b, largeSpec(2)), decodeSpecText(b, largeSpec(3))
	for b.Loop() {
		if len(spec.DiffSpecs(one, two)) == 0 {
			b.Fatal("no difference")
		}
	}
}

// TestLargeSpecMeetsItsTargets applies specs of 10,000 objects to three nodes over loopback, with their logs on disk,
// and restarts a follower after twenty of them. It prints the durations and compares them with their targets, which
// needs an idle machine: `make large`.
func TestLargeSpecMeetsItsTargets(t *testing.T) {
	if os.Getenv("SPILLWAY_LARGE") == "" {
		t.Skip("measures: run make large")
	}
	p := &testFleet{t: t, dir: t.TempDir(), gateways: map[string]*fakeGateway{}, heartbeat: time.Second}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	var peers []consensus.RaftPeer
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range 3 {
		s := p.newNodeIn(fmt.Sprintf("g%d", i+1), "127.0.0.1:0", dirs[i], testSpecText())
		p.nodes = append(p.nodes, s)
		peers = append(peers, consensus.RaftPeer{ID: s.cfg.Name, Addr: s.RaftAddr().String()})
	}
	for _, s := range p.nodes {
		s.SetPeers(peers)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, s := range p.nodes {
			p.stopNode(s)
		}
	})
	shows := func(s *Server, version uint64) bool {
		v := s.snapshot.Load()
		return v != nil && v.Version >= version && v.source == agreedState
	}
	const patience = time.Minute
	testkit.EventuallyWithin(t, patience, "a first spec is in force", func() bool { return shows(p.nodes[0], 1) && shows(p.nodes[1], 1) && shows(p.nodes[2], 1) })

	const applies = 20
	texts := []string{largeSpec(2), largeSpec(3)}
	var took, everywhere []time.Duration
	used := processorTime()
	version := uint64(0)
	for i := range applies {
		at := p.nodes[i%3] // the leader and both followers in turn
		c := p.adminClient(at)
		begun := time.Now()
		a, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "large.yaml", Text: texts[i%2]})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		version = a.Version
		testkit.EventuallyWithin(t, patience, "all nodes show it", func() bool {
			return shows(p.nodes[0], version) && shows(p.nodes[1], version) && shows(p.nodes[2], version)
		})
		everywhere = append(everywhere, time.Since(begun))
	}
	used = processorTime() - used
	slices.Sort(took)
	slices.Sort(everywhere)
	t.Logf("apply of %d bytes: p50 %s, max %s; until every node answers by it p50 %s, max %s; %s of processor time each, for all three nodes", len(texts[0]),
		took[applies/2].Round(time.Millisecond), took[applies-1].Round(time.Millisecond), everywhere[applies/2].Round(time.Millisecond), everywhere[applies-1].Round(time.Millisecond), (used / applies).Round(time.Millisecond))

	var restarts []time.Duration
	used = processorTime()
	for range 5 {
		at := (slices.Index(p.nodes, p.awaitLeader()) + 1) % 3
		addr := p.nodes[at].RaftAddr().String()
		p.stopNode(p.nodes[at])
		specCache.clearCache()
		planCache.clearCache()
		begun := time.Now()
		s := p.newNodeIn(p.nodes[at].cfg.Name, addr, dirs[at], testSpecText())
		p.nodes[at] = s
		s.SetPeers(peers)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyWithin(t, patience, "it follows", func() bool { return shows(s, version) && s.node.Leader() != "" })
		restarts = append(restarts, time.Since(begun))
	}
	slices.Sort(restarts)
	t.Logf("restart of a follower with %d such specs in its log: p50 %s, max %s; %s of processor time each, including concurrent work", applies,
		restarts[2].Round(time.Millisecond), restarts[4].Round(time.Millisecond), ((processorTime() - used) / 5).Round(time.Millisecond))
	if took[applies/2] > time.Second || restarts[2] > 3*time.Second {
		t.Error("want an apply under 1s and a restart under 3s")
	}
}

// TestTooLargeSpecIsRefused: a spec that does not fit the log is refused, with its size.
func TestTooLargeSpecIsRefused(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	c := p.adminClient(p.awaitLeader())
	text := strings.Replace(largeSpec(2), "tenants:\n", "tenants:\n"+strings.Repeat("# filler\n", 200_000), 1)
	_, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text})
	if err == nil || !strings.Contains(err.Error(), "more than the 3145728 that are read") {
		t.Errorf("a text beyond the bound: %v", err)
	}
	if os.Getenv("SPILLWAY_LARGE") == "" {
		return // the rest takes long
	}
	var wide strings.Builder
	head, _, _ := strings.Cut(testSpecText(), "tenants:")
	wide.WriteString(head + "tenants:\n")
	for i := range 17000 {
		fmt.Fprintf(&wide, "- {name: t%d, keys: [%q], limits: {concurrency: 9, tokens_per_minute: 7}}\n", i, spec.HashKey(fmt.Sprintf("sk-%024d", i)))
	}
	_, err = c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: wide.String()})
	if err == nil || !strings.Contains(err.Error(), "over the limit of") {
		t.Errorf("a spec beyond the bound: %v", err)
	}
}

// clearCache empties the cache, as in a new process.
func (r *decodeCache[T]) clearCache() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = nil
}

// processorTime returns the processor time of this process on all cores.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
