package steer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/global/steer"
)

// planVersionOne is a plan as releases before version 2 wrote it, which a Raft log or a backup may still contain.
const planVersionOne = `{"spec":7,"regions":["fra","iad","nrt"],"without":["nrt"],"services":[{"name":"chat.api.example.",` +
	`"wait":[0.005,0,0],"price":[0,0.015,10],"spread":[{"r":0,"w":2500},{"r":1,"w":7500}],` +
	`"rows":[{"cell":"n40w075","shares":[{"r":1,"w":10000}]},{"cell":"n50e008","shares":[{"r":0,"w":3333},{"r":1,"w":6667}]}]}]}`

func TestPlanOfVersion1IsRead(t *testing.T) {
	got, err := steer.DecodePlan([]byte(planVersionOne))
	if err != nil {
		t.Fatal(err)
	}
	want := &steer.Plan{SpecVersion: 7, Regions: []string{"fra", "iad", "nrt"}, Without: []string{"nrt"}, Services: []steer.ServicePlan{{
		Name: "chat.api.example.", Wait: []float64{0.005, 0, 0}, Price: []float64{0, 0.015, 10},
		Spread: []steer.RegionShare{{Region: 0, Weight: 64}, {Region: 1, Weight: 192}},
		Rows: []steer.CellRow{
			{Cell: "n40w075", Shares: []steer.RegionShare{{Region: 1, Weight: 256}}},
			{Cell: "n50e008", Shares: []steer.RegionShare{{Region: 0, Weight: 85}, {Region: 1, Weight: 171}}},
		},
	}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	b, err := steer.EncodePlan(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := steer.CheckPlan([]byte(planVersionOne), b); err != nil {
		t.Errorf("a plan of version 2 may not follow one of version 1: %v", err)
	}
	if again, err := steer.DecodePlan(b); err != nil || cmp.Diff(got, again) != "" {
		t.Errorf("written and read again: %v %s", err, cmp.Diff(got, again))
	}
}

func TestPlanOfALaterVersionIsRefused(t *testing.T) {
	_, err := steer.DecodePlan([]byte{4, 0, 0})
	if err == nil || !strings.Contains(err.Error(), "version 4") || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("got %v", err)
	}
}

// TestMalformedPlansAreRefused truncates and modifies a valid plan everywhere: nothing panics, and every client still
// gets a region.
func TestMalformedPlansAreRefused(t *testing.T) {
	p, err := steer.DecodePlan([]byte(planVersionOne))
	if err != nil {
		t.Fatal(err)
	}
	good, err := steer.EncodePlan(p)
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := steer.DecodePlan(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a plan", n, len(good))
		}
		for bit := range 8 {
			bent := append([]byte(nil), good...)
			bent[n] ^= 1 << bit
			if p, err := steer.DecodePlan(bent); err == nil {
				checkEveryClientAnswered(t, p)
			}
		}
	}
}

func checkEveryClientAnswered(t *testing.T, p *steer.Plan) {
	t.Helper()
	in := newYorkInput()
	table := steer.CompileTable(in.Spec, inputGeography(in), p)
	for c := int32(-1); c < 3; c++ {
		if table.PickRegion(&steer.PickQuery{Cell: c}).Region < 0 {
			t.Fatal("a decoded plan leaves a client without a region")
		}
	}
}

func FuzzDecodePlan(f *testing.F) {
	b, err := steer.EncodePlan(steer.SolvePlan(newYorkInput()).Plan)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(planVersionOne))
	f.Add([]byte(`{"spec":1,"regions":["a"],"services":[]}`))
	f.Add([]byte{2, 1, 1, 1, 'a', 0, 0, 0, 1, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := steer.DecodePlan(b)
		if err != nil {
			return
		}
		again, err := steer.EncodePlan(p)
		if err != nil && strings.Contains(err.Error(), "over the limit") || err != nil && strings.Contains(err.Error(), "does without") {
			return // version 1 had a larger range
		}
		if err != nil {
			t.Fatal(err)
		}
		back, err := steer.DecodePlan(again)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if b[0] == again[0] {
			if d := cmp.Diff(p, back); d != "" {
				t.Fatalf("read again: %s", d)
			}
		}
		checkEveryClientAnswered(t, p)
	})
}

// crowdedInput is the input with the largest plans: every cell of the map has demand for every service, and regions
// are short of capacity, so that many cells are displaced.
func crowdedInput(cells int, services int) *steer.PlanInput {
	const regions = 30
	in := &steer.PlanInput{Spec: oneService(regions), SpecVersion: 1}
	in.Spec.Services = nil
	for s := range services {
		svc := oneService(1).Services[0]
		svc.Name = fmt.Sprintf("s%03d.api.example.", s)
		in.Spec.Services = append(in.Spec.Services, svc)
	}
	for r := range regions {
		in.Regions = append(in.Regions, steer.RegionState{Models: []steer.ModelCapacity{{Name: testModel, Rate: 1000 * float64(1+r%7)}}})
	}
	for c := range cells {
		cell := steer.Cell{Name: fmt.Sprintf("n%02de%03d", c%90, c/90)}
		for r := range regions {
			cell.RTT = append(cell.RTT, float32(0.005+0.001*float64((c*31+r*17)%211)))
		}
		in.Cells = append(in.Cells, cell)
		for s := range services {
			in.Demand = append(in.Demand, steer.CellDemand{
				Service: in.Spec.Services[s].Name, Model: testModel, Cell: cell.Name, Rate: 80000 / float64(cells*services) * float64(1+(c+s)%5) / 3,
			})
		}
	}
	return in
}

func TestPlanStaysWithinItsSizeLimit(t *testing.T) {
	for _, c := range []struct{ cells, services int }{{200, 1}, {200, 50}, {2000, 4}} {
		in := crowdedInput(c.cells, c.services)
		in.Prev = steer.SolvePlan(in).Plan
		for i := range in.Demand { // between two solutions, when most cells have a row
			in.Demand[i].Rate *= 0.5 + float64(i*7%11)/10
		}
		res := steer.SolvePlan(in)
		b, err := steer.EncodePlan(res.Plan)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, s := range res.Plan.Services {
			rows += len(s.Rows)
		}
		t.Logf("%d cells x %d services: %d rows in %d bytes (%s)", c.cells, c.services, rows, len(b), res.Reason)
		if len(b) > 64<<10 {
			t.Errorf("the plan takes %d bytes", len(b))
		}
	}
}

func TestPlanCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p := steer.SolvePlan(in).Plan
		b, err := steer.EncodePlan(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := steer.DecodePlan(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, back); d != "" {
			t.Fatalf("the codec changed the plan: %s", d)
		}
		if again, _ := steer.EncodePlan(back); string(again) != string(b) {
			t.Fatal("the same plan has two texts")
		}
	})
}
