package telemetry_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestLabelsAreBounded(t *testing.T) {
	l := telemetry.NewBoundedLabel(3)
	got := map[string]int{}
	for i := range 10 {
		got[l.BoundValue(fmt.Sprint("v", i))]++
	}
	if len(got) != 4 || got[telemetry.OtherLabel] != 7 {
		t.Fatalf("ten values became %v, want three and the rest under %q", got, telemetry.OtherLabel)
	}
	if v := l.BoundValue("v0"); v != "v0" {
		t.Fatalf("an accepted value became %q", v)
	}
}

func TestRegistryHasBuildInfo(t *testing.T) {
	families, err := telemetry.NewRegistry("global", "g1", "v1").Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "spillway_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["tier"] != "global" || labels["node"] != "g1" || labels["version"] != "v1" {
			t.Fatalf("build info has %v", labels)
		}
		return
	}
	t.Fatal("no build info")
}

func TestLoggerIsNeverNil(t *testing.T) {
	telemetry.LoggerOrDiscard(nil).Info("discarded", telemetry.ErrorAttr(fmt.Errorf("x")))
}

// TestRenamedMetricsKeepTheirEarlierName gathers a renamed metric and one that is not.
func TestRenamedMetricsKeepTheirEarlierName(t *testing.T) {
	r := prometheus.NewRegistry()
	for _, name := range []string{"spillway_global_raft_not_member", "spillway_global_raft_voters"} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Help."})
		g.Set(3)
		r.MustRegister(g)
	}
	families, err := prometheus.Gatherers{telemetry.WithEarlierNames(r)}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	for _, f := range families {
		help[f.GetName()] = f.GetHelp()
		if v := f.GetMetric()[0].GetGauge().GetValue(); v != 3 {
			t.Errorf("%s is %v, want 3", f.GetName(), v)
		}
	}
	want := map[string]string{
		"spillway_global_raft_not_member": "Help.", "spillway_global_raft_voters": "Help.",
		"spillway_global_raft_outside": "deprecated: use spillway_global_raft_not_member; removed in the next release",
	}
	if !maps.Equal(help, want) {
		t.Errorf("help is %q, want %q", help, want)
	}
}

// TestMemberCache: concurrent lookups of the same keys look each member up once.
func TestMemberCache(t *testing.T) {
	type key struct {
		name string
		n    int
	}
	var found atomic.Int32
	k := telemetry.NewMemberCache(func(k key) *key { found.Add(1); return &k })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 400 {
				want := key{[]string{"a", "b"}[i%2], i / 2 % 50}
				if got := k.FindMember(want); *got != want {
					t.Errorf("%v is not %v", *got, want)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() != 100 {
		t.Errorf("100 members were looked up %d times", found.Load())
	}
}

func TestLogThrottleAllowsOneLinePerMinute(t *testing.T) {
	var r telemetry.LogThrottle
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	allowed, suppressed := 0, 0
	for i := range 1201 { // two minutes at ten lines a second
		if n, ok := r.AllowLine("failed", "g2", start.Add(time.Duration(i)*100*time.Millisecond)); ok {
			allowed, suppressed = allowed+1, suppressed+n
		}
	}
	if allowed != 3 || suppressed != 2*599 {
		t.Fatalf("%d lines were allowed and %d suppressed, want 3 and %d", allowed, suppressed, 2*599)
	}
	if _, ok := r.AllowLine("failed", "g3", start); !ok {
		t.Error("a line about another subject was suppressed")
	}
	if _, ok := r.AllowLine("lost", "g2", start); !ok {
		t.Error("another line about the same subject was suppressed")
	}
	late := start.Add(2*time.Minute + time.Second)
	r.AllowLine("failed", "g2", late)
	if n, ok := r.ResolveSubject("g2"); !ok || n != 1 {
		t.Errorf("the end of trouble: %v with %d suppressed, want true with 1", ok, n)
	}
	if _, ok := r.ResolveSubject("g2"); ok {
		t.Error("the end was reported twice")
	}
	if _, ok := r.AllowLine("failed", "g2", late); ok {
		t.Error("a line about a flapping subject was repeated within a minute")
	}
	if _, ok := r.ResolveSubject("g2"); ok {
		t.Error("the end of suppressed trouble was reported")
	}
	if _, ok := r.ResolveSubject("unknown"); ok {
		t.Error("the end of trouble was reported for a subject without trouble")
	}
}

func TestLogThrottleIsBounded(t *testing.T) {
	var r telemetry.LogThrottle
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	passed := 0
	for i := range 10000 {
		if _, ok := r.AllowLine("failed", fmt.Sprint("peer", i), now); ok {
			passed++
		}
	}
	if passed == 0 || passed > 256 {
		t.Fatalf("%d of 10000 subjects were told apart, want a bound", passed)
	}
	if _, ok := r.AllowLine("failed", "late comer", now.Add(telemetry.MinRepeatInterval)); !ok {
		t.Error("subjects of long ago leave no room for new ones")
	}
}
