package planinput

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestShortWaitSpikeMovesNoClients: any momentary wait, even the first that a new leader reads or the first after a
// long silence, counts for two intervals of ten seconds, so a plan hardly changes.
func TestShortWaitSpikeMovesNoClients(t *testing.T) {
	v := newTestSnapshot(t)
	v.Spec.Steering.Interval = 1e9
	model := v.Spec.Models[0].Name
	v.Plan = &steer.Plan{Regions: v.Plan.Regions, Services: append([]steer.ServicePlan(nil), v.Plan.Services...)}
	for s := range v.Plan.Services {
		v.Plan.Services[s].Wait = []float64{0, 0.1, 0}
	}
	rapid.Check(t, func(t *rapid.T) {
		var p Preparer
		now := v.MadeAt
		read := func(wait float64) float64 {
			regions := []steer.RegionState{{}, {Models: []steer.ModelCapacity{{Name: model, Wait: wait}}}, {}}
			p.smoothWaits(v, regions, now)
			return regions[1].Models[0].Wait
		}
		before := 0.1
		for range rapid.IntRange(0, 5).Draw(t, "readings before") {
			before = read(0.1)
			now = now.Add(time.Second)
		}
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "silence")))
		spike := rapid.Float64Range(0, 10).Draw(t, "spike")
		got := read(spike)
		if most := (1 - math.Exp(-0.2)) * math.Abs(spike-before); math.Abs(got-before) > most+1e-9 {
			t.Fatalf("from %v a moment's %v makes %v, more than %v off", before, spike, got, most)
		}
		for range 60 {
			now = now.Add(time.Second)
			got = read(spike)
		}
		if math.Abs(got-spike) > 0.01*(1+spike) {
			t.Fatalf("after a minute of %v it is still %v", spike, got)
		}
	})
}

// TestNewPlannerUsesMeasuredWaitWithoutAPlan: without a plan, or for a region that the plan lacks, only the reading
// is used.
func TestNewPlannerUsesMeasuredWaitWithoutAPlan(t *testing.T) {
	v := newTestSnapshot(t)
	if w := plannedWait(v, regionModelKey{"nowhere", v.Spec.Models[0].Name}, 3); w != 3 {
		t.Errorf("a region that the plan lacks: %v", w)
	}
	v.Plan = nil
	if w := plannedWait(v, regionModelKey{v.Spec.Regions[0].Name, v.Spec.Models[0].Name}, 3); w != 3 {
		t.Errorf("no plan: %v", w)
	}
}

// TestExplainedQueueDoesNotCountWhileItDrains: load fills a queue and is removed; its wait is explained while it
// drains, and a wait that stays comes to count.
func TestExplainedQueueDoesNotCountWhileItDrains(t *testing.T) {
	var b explainedWaits
	k, now := regionModelKey{"r", "m"}, time.Now()
	if got := b.updateWait(k, 3, now); got != 3 {
		t.Errorf("load explains 3 s: %v", got)
	}
	for range 30 {
		now = now.Add(time.Second)
		if got := b.updateWait(k, 0.1, now); got < 1.7 || got > 3 {
			t.Fatalf("of 3 s it explains %v within half a minute", got)
		}
	}
	for range 300 {
		now = now.Add(time.Second)
		b.updateWait(k, 0.1, now)
	}
	if got := b.updateWait(k, 0.1, now); got != 0.1 {
		t.Errorf("after five minutes it still explains %v", got)
	}
	b.updateWait(regionModelKey{"other", "m"}, 1, now.Add(time.Second))
	if b.dropUnused(now.Add(time.Second)); len(b) != 1 {
		t.Errorf("an unused entry is kept: %v", b)
	}
}

const testService = "chat.api.example."

const testSpec = `
zone:
  name: api.example.
  nameservers: [{name: ns1.api.example., addresses: [127.0.1.1]}]
services:
  - name: chat.api.example.
regions:
  - {name: virginia, place: {city: Ashburn, lat: 39.04, lon: -77.49}, gateways: [{name: gv, addresses: [127.0.2.1], url: "http://127.0.2.1:8080"}]}
  - {name: frankfurt, place: {city: Frankfurt, lat: 50.11, lon: 8.68}, gateways: [{name: gf, addresses: [127.0.3.1], url: "http://127.0.3.1:8080"}]}
  - {name: tokyo, place: {city: Tokyo, lat: 35.68, lon: 139.69}, gateways: [{name: gt, addresses: [127.0.4.1], url: "http://127.0.4.1:8080"}]}
models:
  - name: m1
`

// newTestSnapshot returns a snapshot with a plan. Every region reports eight workers.
func newTestSnapshot(t *testing.T) *snapshot.SteeringSnapshot {
	t.Helper()
	sp, err := spec.Decode("spec", []byte(testSpec))
	if err != nil {
		t.Fatal(err)
	}
	var cells []geo.Cell
	for i := range sp.Regions {
		p := &sp.Regions[i].Place
		at := geo.Location{City: p.City, Lat: p.Lat, Lon: p.Lon}
		cells = append(cells, geo.Cell{ID: geo.CellAt(at), Name: geo.CellName(geo.CellAt(at)), Location: at})
	}
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	for i := range sp.Regions {
		r := &sp.Regions[i]
		book.PutSummary(&capacity.Summary{
			Path: capacity.Path{Region: r.Name, Instance: r.Gateways[0].Name}, Boot: 1, Seq: 1,
			Models: []*capacity.ModelCapacity{{Name: "m1", Ready: 8, Total: 8}},
		}, now)
	}
	v := snapshot.NewSteeringSnapshot(snapshot.Inputs{
		Policy: snapshot.NewPolicy(1, nil, sp, cells), Children: book.BuildView(now), Votes: &liveness.Votes{Self: "g1", Voters: []string{"g1"}}, Now: now, Settled: true,
	})
	v.Plan = steer.SolvePlan(v.BuildPlanInput()).Plan
	return v
}
