package lease

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// delay is within how long messages arrive that arrive at all, and an old leader notices that it is none.
	delay = 2 * time.Second
	// touch is how old a gateway's acknowledged lease may be before the gateway counts as out of touch. With delay it makes
	// spec.LeaseGap.
	touch = 3 * time.Second
	// calm is how long a tenant must ask for little everywhere before it goes off the list.
	calm = time.Minute
	// maxListed bounds the shared limits in contention at a time. Others keep their static shares.
	maxListed = 1024
)

// Report is what one gateway said last.
type Report struct {
	Holder  spec.Holder
	Age     time.Duration // since it arrived
	Holding capacity.Holding
	Uses    []capacity.Use
}

// Grant is what one gateway is to be told. The same grant may be said again.
type Grant struct {
	Term, Number uint64
	Boot, Mark   uint64 // of the statement that it answers
	Hold         bool   // no list: nobody more than the static share, or less where it is less
	Leases       []Lease
}

// Lease is one tenant's part at one gateway.
type Lease struct {
	Tenant string
	Day    int64 // that the parts of a budget are for
	Part   spec.Allowance
}

// Leader holds what is granted. It has one owner. Make one with New for each term.
type Leader struct {
	term    uint64
	since   time.Time
	holders map[spec.Holder]*holder
	left    map[spec.Holder]*holder // that the spec lists no longer, until what they were granted has lapsed
	circles map[key]*circle
	spec    *spec.Spec

	// LeftOut counts tenants that found no room on the list in the last step.
	LeftOut int
}

type key struct{ tenant, region string }

// New begins a term.
func New(term uint64, now time.Time) *Leader {
	return &Leader{term: term, since: now, holders: map[spec.Holder]*holder{}, left: map[spec.Holder]*holder{}, circles: map[key]*circle{}}
}

// Term is the one that it was begun with.
func (l *Leader) Term() uint64 { return l.term }

// Listed is the number of tenants and circles in contention.
func (l *Leader) Listed() int { return len(l.circles) }

// Step takes what gateways said and decides what they are told. It is called every quarter of a second or so. Grants are
// made for gateways of the spec that are heard; nil in the first seconds of a term.
func (l *Leader) Step(now time.Time, s *spec.Spec, reports []Report) map[spec.Holder]*Grant {
	if now.Sub(l.since) < delay {
		return nil
	}
	l.adopt(s)
	l.forget(now)
	for _, h := range l.holders {
		h.report = nil
	}
	for i := range reports {
		if h := l.holders[reports[i].Holder]; h != nil {
			h.report = &reports[i]
		}
	}
	l.listen(now)
	dark := l.dark(now)
	for _, h := range l.holders {
		l.judge(h, dark)
	}
	l.list(now)
	for _, c := range l.circles {
		c.aim(now)
	}
	return l.offer(now)
}

// adopt takes another spec: parts that are held stay, in the circles that are left.
func (l *Leader) adopt(s *spec.Spec) {
	if l.spec == s {
		return
	}
	l.spec = s
	old := l.holders
	l.holders = map[spec.Holder]*holder{}
	for i := range s.Regions {
		r := &s.Regions[i]
		for k := range r.Gateways {
			id := spec.Holder{Region: r.Name, Gateway: r.Gateways[k].Name}
			switch h := cmp.Or(old[id], l.left[id]); h {
			case nil:
				l.holders[id] = &holder{id: id}
			default:
				l.holders[id] = h
				delete(l.left, id)
			}
		}
	}
	for id, h := range old {
		if l.holders[id] == nil {
			h.leave()
			l.left[id] = h
		}
	}
	was := l.circles
	l.circles = map[key]*circle{}
	for k, c := range was {
		t := s.Tenant(k.tenant)
		if t == nil {
			continue
		}
		if next := l.circle(t, s.CircleOf(t, c.stakes[0].holder.id.Region)); next != nil {
			next.inherit(c)
			for _, x := range c.stakes {
				if l.left[x.holder.id] == x.holder {
					next.stakes = append(next.stakes, &stake{holder: x.holder, held: x.held, offered: x.offered, use: x.use})
				}
			}
		}
	}
}

// forget drops the gateways that left the spec once what they were granted has lapsed. A budget does not lapse: what they
// may have used of it counts until the day is over.
func (l *Leader) forget(now time.Time) {
	if len(l.left) == 0 {
		return
	}
	keep := map[*holder]bool{}
	for _, c := range l.circles {
		c.stakes = slices.DeleteFunc(c.stakes, func(s *stake) bool {
			if l.left[s.holder.id] != s.holder {
				return false
			}
			most := s.most(now)
			stays := !s.holder.lapsed(now) || most[spec.DayTokens] > 0 || most[spec.DayMicros] > 0
			keep[s.holder] = keep[s.holder] || stays
			return !stays
		})
	}
	for id, h := range l.left {
		if !keep[h] && h.lapsed(now) {
			delete(l.left, id)
		}
	}
}

// circle lists a tenant's circle, or finds it listed; nil when nothing is shared in it.
func (l *Leader) circle(t *spec.Tenant, c spec.Circle) *circle {
	if c.Size() < 2 {
		return nil
	}
	k := key{t.Name, ""}
	if t.Limits.Scope != spec.ScopeGlobal {
		k.region = c.Region()
	}
	if x := l.circles[k]; x != nil {
		return x
	}
	whole := t.Allowance()
	if whole == (spec.Allowance{}) {
		return nil
	}
	x := &circle{tenant: t, whole: whole}
	c.Each(whole, func(id spec.Holder, static spec.Allowance) {
		x.stakes = append(x.stakes, &stake{holder: l.holders[id], static: static, held: static, offered: static, target: static})
	})
	l.circles[k] = x
	return x
}

// listen brings what is used into the circles in contention, and opens new ones.
func (l *Leader) listen(now time.Time) {
	for _, c := range l.circles {
		c.quiet()
	}
	l.LeftOut = 0
	for _, h := range l.inOrder() {
		if h.report == nil {
			continue
		}
		for i := range h.report.Uses {
			l.use(h, &h.report.Uses[i], now)
		}
	}
	for _, c := range l.circles {
		c.turn(c.tenant.Budget.Day(now))
	}
}

// list closes circles that nobody presses any more.
func (l *Leader) list(now time.Time) {
	for k, c := range l.circles {
		if now.Sub(c.busy) > calm && c.atRest() {
			delete(l.circles, k)
		}
	}
}

func (l *Leader) use(h *holder, u *capacity.Use, now time.Time) {
	t := l.spec.Tenant(u.Tenant)
	if t == nil {
		return
	}
	k := key{tenant: t.Name}
	if t.Limits.Scope != spec.ScopeGlobal {
		k.region = h.id.Region
	}
	c := l.circles[k]
	if c == nil {
		of := l.spec.CircleOf(t, h.id.Region)
		if of.Size() < 2 || !presses(u, of.Static(t.Allowance(), h.id), t.Budget.Day(now)) {
			return
		}
		if len(l.circles) >= maxListed {
			l.LeftOut++
			return
		}
		if c = l.circle(t, of); c == nil {
			return
		}
		c.busy = now
	}
	for _, s := range c.stakes {
		if s.holder != h {
			continue
		}
		s.use = *u
		if presses(u, s.static, t.Budget.Day(now)) {
			c.busy = now
		}
	}
}

// presses says that a gateway may soon need more than its static share of something.
func presses(u *capacity.Use, static spec.Allowance, day int64) bool {
	spent := u.Day == day
	return over(u.RequestsMilli, static[spec.Requests]) || over(u.TokensMilli, static[spec.Tokens]) ||
		over(u.Wanted, static[spec.Concurrency]) || spent && (over(u.DayTokens, static[spec.DayTokens]) || over(u.DayMicros, static[spec.DayMicros]))
}

func over(n, static int64) bool { return n > 0 && 2*n > static }

func (l *Leader) inOrder() []*holder {
	out := make([]*holder, 0, len(l.holders))
	for _, h := range l.holders {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b *holder) int {
		return cmp.Or(strings.Compare(a.id.Region, b.id.Region), strings.Compare(a.id.Gateway, b.id.Gateway))
	})
	return out
}

func (l *Leader) circlesInOrder() []*circle {
	keys := make([]key, 0, len(l.circles))
	for k := range l.circles {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.region, b.region))
	})
	out := make([]*circle, len(keys))
	for i, k := range keys {
		out[i] = l.circles[k]
	}
	return out
}
