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

// asked is what one place demands of the only service, in tokens/s.
func asked(v *View, place string, rate float64) steer.Demand {
	cell := v.atlas.Locate(netip.MustParseAddr(clients[place])).Cell
	return steer.Demand{Service: service, Model: "m1", Cell: geo.CellName(cell), Rate: rate}
}

func decoded(t *testing.T, from, to string) *spec.Spec {
	t.Helper()
	s, err := spec.Decode("spec", []byte(strings.Replace(specText(), from, to, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReplay rehearses a bias on Tokyo with a known past: in one minute Tokyo's clients asked for three parts of four,
// in another for nothing.
func TestReplay(t *testing.T) {
	v, l := stillView(t), new(demandLog)
	begun := time.Now()
	l.add([]steer.Demand{asked(v, "virginia", 1000)}, begun)
	l.add([]steer.Demand{asked(v, "virginia", 2000), asked(v, "tokyo", 6000)}, begun.Add(2*time.Minute))
	l.add([]steer.Demand{asked(v, "virginia", 0), asked(v, "tokyo", 0)}, begun.Add(2*time.Minute+time.Second))
	minutes := l.newest(16)
	h, err := v.rehearse(decoded(t, "name: tokyo, place", "name: tokyo, bias_ms: 900, place"), minutes)
	if err != nil {
		t.Fatal(err)
	}
	r := h.report(minutes)
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
	// Half of the demand and more is Tokyo's: its own region before, another continent after.
	if s.P50Before <= 0 || s.P50After < s.P50Before+0.05 {
		t.Errorf("the median goes from %.4f s to %.4f s", s.P50Before, s.P50After)
	}
	moves := h.moves()
	if len(moves) != 1 || moves[0].From != "tokyo" || moves[0].Quiet || math.Abs(moves[0].Share-s.Moved) > 1e-9 {
		t.Errorf("moves are %+v", moves)
	}
}

func TestReplayOfNothing(t *testing.T) {
	v := stillView(t)
	h, err := v.rehearse(decoded(t, "name: tokyo, place", "name: tokyo, bias_ms: 900, place"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, moves := h.report(nil), h.moves()
	if r.Minutes != 0 || r.Services[0].Cells != 0 || r.Services[0].QuietCellsMoved == 0 || r.Services[0].P50After != 0 {
		t.Errorf("report is %+v", r)
	}
	if len(moves) == 0 || !moves[0].Quiet {
		t.Errorf("moves are %+v", moves)
	}
	if h, err = v.rehearse(decoded(t, "name: chat.api", "name: talk.api"), nil); err != nil {
		t.Fatal(err)
	}
	if r := h.report(nil); len(r.Services) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "not in the new spec") {
		t.Errorf("without its only service: %+v", r)
	}
}

// TestSameSpecMovesNobody holds for any demand that a spec does not move clients against itself.
func TestSameSpecMovesNobody(t *testing.T) {
	v, same := stillView(t), decoded(t, "zone:", "zone:")
	rapid.Check(t, func(t *rapid.T) {
		var d []steer.Demand
		for place := range clients {
			d = append(d, asked(v, place, float64(rapid.IntRange(0, 30000).Draw(t, place))))
		}
		l := new(demandLog)
		l.add(d, time.Now())
		minutes := l.newest(1)
		h, err := v.rehearse(same, minutes)
		if err != nil {
			t.Fatal(err)
		}
		r := h.report(minutes).Services[0]
		if r.Moved != 0 || r.CellsMoved+r.QuietCellsMoved != 0 || r.P50Before != r.P50After || len(h.moves()) != 0 {
			t.Fatalf("the same spec moves %+v, %+v", r, h.moves())
		}
	})
}

// TestDemandLogIsBounded: neither time nor the number of flows makes it grow without end.
func TestDemandLogIsBounded(t *testing.T) {
	l, now := new(demandLog), time.Now()
	var flood []steer.Demand
	for i := range maxFlows + 7 {
		flood = append(flood, steer.Demand{Service: service, Model: "m1", Cell: fmt.Sprint(i), Rate: 1})
	}
	l.add(flood, now)
	if got := l.newest(1); len(got[0].demand) != maxFlows || got[0].left != 7 {
		t.Errorf("%d flows are kept and %d left out", len(got[0].demand), got[0].left)
	}
	for i := range 1000 {
		l.add([]steer.Demand{{Service: service, Rate: 1}}, now.Add(time.Duration(i)*7*time.Second))
	}
	if n := len(l.minutes); n > int(replayed/time.Minute)+1 {
		t.Errorf("%d minutes are kept", n)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		all  []prediction
		want float64
	}{
		{nil, 0},
		{[]prediction{{3, 1}}, 3},
		{[]prediction{{9, 1}, {1, 1}, {5, 1}}, 5},
		{[]prediction{{1, 1}, {9, 5}, {2, 1}}, 9},
	} {
		if got := median(c.all); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.all, got, c.want)
		}
	}
}
