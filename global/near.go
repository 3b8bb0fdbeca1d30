package global

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	// relearn is how often measured round trips are looked at: paths change slowly, and gateways report seldom.
	relearn = 2 * time.Second
	// A round trip that moves by less than a part in twenty, or than a millisecond, is left as it was: each change
	// makes tables and answers anew.
	nearShare = 0.05
	nearLeast = 0.001 // seconds
)

// near is how far cells are from regions: a frame's priors, blended with what gateways measured. It is immutable.
type near struct {
	frame *frame
	geo   *steer.Geography
	cells map[int32][]geo.Estimate // by region; cells of which nothing was measured are not there
	peers map[int][]geo.Estimate   // by region and region; those that measured nothing are not there
	made  time.Time
	limit time.Duration // measurements older than this do not count; negative: none does
	// measuring is how many regions have reported round trips.
	measuring int
}

// nearness blends what each region's gateways say into a frame's priors.
func nearness(f *frame, children *capacity.View, limit time.Duration, now time.Time) *near {
	n := &near{frame: f, geo: f.geo, made: now, limit: limit, measuring: measuring(children)}
	n.peers = n.paths(children)
	measured := n.gather(children)
	if len(measured) == 0 {
		return n
	}
	places := make([]geo.Place, len(f.spec.Regions))
	for r := range places {
		places[r] = placeOf(&f.spec.Regions[r])
	}
	n.cells = make(map[int32][]geo.Estimate, len(measured))
	rows := make(map[int32][]float32, len(measured))
	for cell, m := range measured {
		at, ok := f.placeOfCell(cell)
		if !ok {
			continue
		}
		n.cells[cell] = geo.Blend(at, places, m, limit)
		for _, e := range n.cells[cell] {
			rows[cell] = append(rows[cell], float32(e.RTT.Seconds()))
		}
	}
	n.geo = f.geo.With(rows)
	return n
}

// gather lists what was measured by cell and region.
func (n *near) gather(children *capacity.View) map[int32][]geo.Measured {
	out := map[int32][]geo.Measured{}
	if n.limit < 0 {
		return out
	}
	for _, g := range children.Regions() {
		r := n.frame.region(g.Path.Region)
		if r < 0 {
			continue
		}
		for i := range g.Summary.RTTs {
			x := &g.Summary.RTTs[i]
			cell := geo.CellNamed(x.Cell)
			if cell == geo.NoCell || x.Samples <= 0 {
				continue
			}
			if out[cell] == nil {
				out[cell] = make([]geo.Measured, len(n.frame.spec.Regions))
			}
			out[cell][r] = geo.Measured{Median: micros(x.Micros()), Samples: float64(x.Samples), Age: age(x.AgeSec) + g.Age}
		}
	}
	return out
}

// micros and age take amounts up to 2^53, more than a Duration holds.
func micros(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

func age(seconds int64) time.Duration {
	const most = 1000 * time.Hour // older than anything that counts, with room for a sum
	return min(time.Duration(min(seconds, int64(most/time.Second)))*time.Second, most)
}

// placeOfCell is the place that stands for a cell, if the atlas knows it.
func (f *frame) placeOfCell(cell int32) (geo.Place, bool) {
	cells := f.atlas.Cells()
	i, ok := slices.BinarySearchFunc(cells, cell, func(c geo.Cell, id int32) int { return int(c.ID - id) })
	if !ok {
		return geo.Place{}, false
	}
	return cells[i].Place, true
}

// differs reports whether some round trip is another one than before by more than counts.
func (n *near) differs(old *near) bool {
	if n.frame != old.frame {
		return true
	}
	for _, cells := range []map[int32][]geo.Estimate{n.cells, old.cells} {
		for cell := range cells {
			if rowsDiffer(n.geo.Row(cell), old.geo.Row(cell)) {
				return true
			}
		}
	}
	return false
}

func rowsDiffer(a, b []float32) bool {
	return !slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Abs(float64(x-y)) <= max(nearLeast, nearShare*float64(y))
	})
}

// measuring counts the regions that have reported round trips.
func measuring(children *capacity.View) (n int) {
	for _, g := range children.Regions() {
		if len(g.Summary.RTTs) > 0 {
			n++
		}
	}
	return n
}

// learn blends anew, now and then and for each new frame, and at once when another region reports round trips: a node that
// has just started would else send clients by distance alone for as long as relearn. What has hardly changed leaves the
// geography, and with it tables and answers, as they are.
func (k *keeper) learn(children *capacity.View, now time.Time) {
	if k.near != nil && k.near.frame == k.frame && now.Sub(k.near.made) < relearn && measuring(children) <= k.near.measuring {
		return
	}
	next := nearness(k.frame, children, k.s.cfg.MeasuredFor, now)
	if k.near != nil && !next.differs(k.near) {
		next.geo = k.near.geo
	}
	k.near = next
}

// adopt makes the View steer by n.
func (v *View) adopt(n *near) { v.near, v.geo = n, n.geo }

// estimate is what a region's round trip from a cell is made of, by the priors where nothing was measured; false for a
// cell that is not known.
func (v *View) estimate(cell int32, region int) (geo.Estimate, bool) {
	row := v.geo.Row(cell)
	if row == nil {
		return geo.Estimate{}, false
	}
	used := time.Duration(float64(row[region]) * float64(time.Second))
	if v.near != nil && v.near.cells[cell] != nil {
		e := v.near.cells[cell][region]
		e.RTT = used
		e.Measured.Age += v.made.Sub(v.near.made)
		return e, true
	}
	return geo.Estimate{RTT: used, Prior: used, Source: geo.RTTPrior}, true
}

// rttNote says in words what a round trip is made of.
func rttNote(region string, e *geo.Estimate) string {
	if e.Source == geo.RTTPrior {
		return fmt.Sprintf("%s: rtt %s ms, prior by distance, nothing measured", region, millis(e.RTT.Seconds()))
	}
	return fmt.Sprintf("%s: rtt %s ms, %s: median %s ms, n=%.0f, age %s; prior %s ms", region, millis(e.RTT.Seconds()), e.Source,
		millis(e.Measured.Median.Seconds()), e.Measured.Samples, e.Measured.Age.Round(time.Second), millis(e.Prior.Seconds()))
}

// rttTexts are the same for a TXT record.
func rttTexts(e *geo.Estimate) []string {
	out := []string{"rtt_ms=" + millis(e.RTT.Seconds()), "rtt_source=" + e.Source}
	if e.Source != geo.RTTPrior {
		out = append(out, "rtt_n="+strconv.FormatFloat(e.Measured.Samples, 'f', 0, 64),
			"rtt_age_s="+strconv.Itoa(int(e.Measured.Age.Seconds())), "rtt_prior_ms="+millis(e.Prior.Seconds()))
	}
	return out
}
