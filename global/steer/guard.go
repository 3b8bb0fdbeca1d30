package steer

import (
	"sort"
	"time"
)

// Guard takes regions out of use by itself while few of their workers are well, and brings them back when enough have
// been well for a while; but never more than a part of all capacity, because when most of the world looks sick it is
// more likely the looking that is. Regions that nobody hears of are none of its business: no data is not bad data. Nor are
// regions that it has not yet seen well: those are starting. The figures are those of Google's service load balancing
// policy. The zero Guard is ready.
type Guard struct {
	sick map[string]time.Time // since when enough of its workers have been well; zero: not yet
	seen map[string]bool      // regions that were well at some time
}

const (
	sickBelow  = 0.25 // of its workers are ready, or could be
	wellAbove  = 0.35
	wellFor    = time.Minute
	guardedMax = 0.5
)

// Mark fills in which regions are Sick for a plan that is made now.
func (g *Guard) Mark(in *Input, now time.Time) {
	most := guardedMax
	if d := in.Spec.Steering.DrainGuard; d != nil {
		most = max(0, min(finite(*d, 1), guardedMax))
	}
	var list []suspect
	all, seen := 0.0, map[string]bool{}
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		s := newSuspect(in, r)
		all += s.total
		in.Regions[r].Sick = false
		seen[s.name] = g.seen[s.name] || s.total > 0 && s.ready >= wellAbove
		if s.total > 0 && seen[s.name] && !in.Regions[r].Drained && !in.Regions[r].Lost {
			s.since, s.was = g.sick[s.name]
			list = append(list, s)
		}
	}
	sort.SliceStable(list, func(a, b int) bool { // those that are out stay out before others follow
		if list[a].was != list[b].was {
			return list[a].was
		}
		return list[a].ready < list[b].ready
	})
	next, taken := map[string]time.Time{}, 0.0
	for _, s := range list {
		if s.sick(now) && taken+s.total <= most*all {
			taken += s.total
			next[s.name] = s.since
			in.Regions[s.region].Sick = true
		}
	}
	g.sick, g.seen = next, seen
}

// suspect is one region as the Guard sees it.
type suspect struct {
	region int
	name   string
	ready  float64 // part of its workers
	total  float64 // workers
	since  time.Time
	was    bool
}

func newSuspect(in *Input, r int) suspect {
	s := suspect{region: r, name: in.Spec.Regions[r].Name}
	for i := range in.Regions[r].Models {
		m := &in.Regions[r].Models[i]
		total := amount(m.Total)
		s.ready += min(total, amount(m.Ready)+amount(m.Warm)+amount(m.Cold)) // asleep or not loaded is not sick
		s.total += total
	}
	if s.total > 0 {
		s.ready /= s.total
	}
	return s
}

// sick decides, and notes since when the region has been well enough.
func (s *suspect) sick(now time.Time) bool {
	if !s.was {
		return s.ready < sickBelow
	}
	switch {
	case s.ready < wellAbove:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	case now.Sub(s.since) >= wellFor:
		return false
	}
	return true
}
