package planinput

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

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
			Models: []capacity.ModelCapacity{{Name: "m1", Ready: 8, Total: 8}},
		}, now)
	}
	v := snapshot.NewSteeringSnapshot(snapshot.Inputs{
		Policy: snapshot.NewPolicy(1, nil, sp, cells), Children: book.BuildView(now), Votes: &liveness.Votes{Self: "g1", Voters: []string{"g1"}}, Now: now, Settled: true,
	})
	v.Plan = steer.SolvePlan(v.BuildPlanInput()).Plan
	return v
}
