package global

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// demandAt returns the demand of one city for the only service, in tokens/s.
func demandAt(v *nodeSnapshot, place string, rate float64) steer.CellDemand {
	cell := v.atlas.Locate(netip.MustParseAddr(clientAddrs[place])).Cell
	return steer.CellDemand{Service: testService, Model: "m1", Cell: geo.CellName(cell), Rate: rate}
}

func decodeReplaced(t *testing.T, from, to string) *spec.Spec {
	t.Helper()
	s, err := spec.Decode("spec", []byte(strings.Replace(testSpecText(), from, to, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDryRunReplaysDemand dry-runs a bias on Tokyo with a known history: three quarters of one minute's demand came
// from Tokyo, and none of another's.
func TestDryRunReplaysDemand(t *testing.T) {
	v, l := newStaticSnapshot(t), new(demandLog)
	begun := time.Now()
	l.addSample([]steer.CellDemand{demandAt(v, "virginia", 1000)}, begun)
	l.addSample([]steer.CellDemand{demandAt(v, "virginia", 2000), demandAt(v, "tokyo", 6000)}, begun.Add(2*time.Minute))
	l.addSample([]steer.CellDemand{demandAt(v, "virginia", 0), demandAt(v, "tokyo", 0)}, begun.Add(2*time.Minute+time.Second))
	minutes := l.newestMinutes(16)
	h, err := dryRunSpec(v, decodeReplaced(t, "name: tokyo, place", "name: tokyo, bias_ms: 900, place"), minutes)
	if err != nil {
		t.Fatal(err)
	}
	r := h.buildReplay(minutes)
	if r.Minutes != 2 || len(r.Services) != 1 || len(r.Notes) != 0 {
		t.Fatalf("report is %+v", r)
	}
	s := r.Services[0]
	if math.Abs(s.Moved-3000.0/5000) > 1e-9 || s.Cells != 2 || s.CellsMoved != 1 {
		t.Errorf("moved %.3f of the demand, %d of %d cells; want 0.6, 1 of 2", s.Moved, s.CellsMoved, s.Cells)
	}
	if s.QuietCells != len(v.atlas.Cells())-2 || s.QuietCellsMoved == 0 || s.QuietCellsMoved >= s.QuietCells {
		t.Errorf("%d cells are quiet, %d of them move", s.QuietCells, s.QuietCellsMoved)
	}
	// More than half of the demand is Tokyo's: its own region before, another continent after.
	if s.P50Before <= 0 || s.P50After < s.P50Before+0.05 {
		t.Errorf("the median goes from %.4f s to %.4f s", s.P50Before, s.P50After)
	}
	moves := h.largestMoves()
	if len(moves) != 1 || moves[0].From != "tokyo" || moves[0].Quiet || math.Abs(moves[0].Share-s.Moved) > 1e-9 {
		t.Errorf("moves are %+v", moves)
	}
}

func TestDryRunWithoutPastDemand(t *testing.T) {
	v := newStaticSnapshot(t)
	h, err := dryRunSpec(v, decodeReplaced(t, "name: tokyo, place", "name: tokyo, bias_ms: 900, place"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, moves := h.buildReplay(nil), h.largestMoves()
	if r.Minutes != 0 || r.Services[0].Cells != 0 || r.Services[0].QuietCellsMoved == 0 || r.Services[0].P50After != 0 {
		t.Errorf("report is %+v", r)
	}
	if len(moves) == 0 || !moves[0].Quiet {
		t.Errorf("moves are %+v", moves)
	}
	if h, err = dryRunSpec(v, decodeReplaced(t, "name: chat.api", "name: talk.api"), nil); err != nil {
		t.Fatal(err)
	}
	if r := h.buildReplay(nil); len(r.Services) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "not in the new spec") {
		t.Errorf("without its only service: %+v", r)
	}
}

// TestSameSpecMovesNoClients: for any demand, a spec moves no clients relative to itself.
func TestSameSpecMovesNoClients(t *testing.T) {
	v, same := newStaticSnapshot(t), decodeReplaced(t, "zone:", "zone:")
	rapid.Check(t, func(t *rapid.T) {
		var d []steer.CellDemand
		for place := range clientAddrs {
			d = append(d, demandAt(v, place, float64(rapid.IntRange(0, 30000).Draw(t, place))))
		}
		l := new(demandLog)
		l.addSample(d, time.Now())
		minutes := l.newestMinutes(1)
		h, err := dryRunSpec(v, same, minutes)
		if err != nil {
			t.Fatal(err)
		}
		r := h.buildReplay(minutes).Services[0]
		if r.Moved != 0 || r.CellsMoved+r.QuietCellsMoved != 0 || r.P50Before != r.P50After || len(h.largestMoves()) != 0 {
			t.Fatalf("the same spec moves %+v, %+v", r, h.largestMoves())
		}
	})
}

// TestDemandLogIsBounded: neither time nor the number of flows lets it grow without bound.
func TestDemandLogIsBounded(t *testing.T) {
	l, now := new(demandLog), time.Now()
	var flood []steer.CellDemand
	for i := range maxDemandFlows + 7 {
		flood = append(flood, steer.CellDemand{Service: testService, Model: "m1", Cell: fmt.Sprint(i), Rate: 1})
	}
	l.addSample(flood, now)
	if got := l.newestMinutes(1); len(got[0].demand) != maxDemandFlows || got[0].droppedFlows != 7 {
		t.Errorf("%d flows are kept and %d left out", len(got[0].demand), got[0].droppedFlows)
	}
	for i := range 1000 {
		l.addSample([]steer.CellDemand{{Service: testService, Rate: 1}}, now.Add(time.Duration(i)*7*time.Second))
	}
	if n := len(l.minutes); n > int(replayWindow/time.Minute)+1 {
		t.Errorf("%d minutes are kept", n)
	}
}

func TestWeightedMedian(t *testing.T) {
	for _, c := range []struct {
		all  []prediction
		want float64
	}{
		{nil, 0},
		{[]prediction{{3, 1}}, 3},
		{[]prediction{{9, 1}, {1, 1}, {5, 1}}, 5},
		{[]prediction{{1, 1}, {9, 5}, {2, 1}}, 9},
	} {
		if got := weightedMedian(c.all); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.all, got, c.want)
		}
	}
}
