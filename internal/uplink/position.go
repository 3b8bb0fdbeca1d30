package uplink

import (
	"cmp"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Bounds of what a directive's position may be. A position beyond them is ignored.
const (
	// generationSlack is how far ahead of this node's clock a generation may lie: a generation is the Unix time of a
	// restore. A larger value lets a faulty parent hold children for longer, a smaller one needs better clocks.
	generationSlack = time.Hour
	// maxIndex is more log entries than a cluster writes in 8,000 years at 1,000 a second.
	maxIndex = 1 << 48
	// leap is how many log entries a directive may lie ahead of most other parents: several hours of plans and changes.
	leap = 1 << 16
	// speaksFor is how long after its last directive a parent counts: directives come every 5 s.
	speaksFor = 3 * directiveEvery
	// lagAfter is how long directives must be ignored before that is logged: parents apply an entry a moment apart.
	lagAfter = 2 * directiveEvery
)

// Position says where in the cluster's history a directive was made. The generation is compared first: it rises when the
// state is restored from an archive or recovered from a lost majority, after which log indices may start again lower.
type Position struct {
	Generation uint64 // Unix time in seconds of the restore or recovery; 0: none, or a parent of an earlier release
	Index      uint64 // of the Raft log
}

// Compare orders positions by age.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Index, q.Index))
}

// Position is where the directive was made.
func (d *Directive) Position() Position { return Position{Generation: d.Generation, Index: d.Index} }

// within reports whether p lies at most a leap before q.
func (p Position) within(q Position) bool {
	return p.Generation > q.Generation || p.Generation == q.Generation && p.Index+leap >= q.Index
}

// possible reports whether any cluster can have reached p by now.
func (p Position) possible(now time.Time) bool {
	return p.Index < maxIndex && p.Generation <= uint64(max(0, now.Add(generationSlack).Unix()))
}

// Verdict says whether a directive may be put in force.
type Verdict uint8

// What a Verdict may be. Newer and Same may be put in force: a directive of the same position has newer peers.
const (
	Newer Verdict = iota
	Same
	OlderIndex
	OlderGeneration
	Implausible
)

// String is the verdict's name in metrics and on pages; empty for a directive that may be put in force.
func (v Verdict) String() string {
	switch v {
	case OlderIndex:
		return "older_index"
	case OlderGeneration:
		return "older_generation"
	case Implausible:
		return "implausible"
	}
	return ""
}

// Ignored reports whether the directive must not be put in force.
func (v Verdict) Ignored() bool { return v >= OlderIndex }

// heardPosition is the position of a parent's last directive.
type heardPosition struct {
	position Position
	at       time.Time
	verdict  Verdict
	lag      lag
}

// judge decides which of several parents' directives may be put in force. With majority, a directive that lies a leap
// ahead of most of three or more parents is refused, so that one faulty global node cannot hold a gateway at a position
// that the cluster never reaches. Gateways cut off from the global tier are honestly far behind, so locals do not use it.
type judge struct {
	majority bool
	parents  map[string]*heardPosition
}

// decide judges a directive at p of a parent against what is in force.
func (j *judge) decide(from string, p, inForce Position, now time.Time) (v Verdict, warn bool) {
	h := j.parents[from]
	if h == nil {
		if j.parents == nil {
			j.parents = map[string]*heardPosition{}
		}
		if len(j.parents) >= maxParents { // certificates come and go, addresses do not
			for name, x := range j.parents {
				if now.Sub(x.at) > speaksFor {
					delete(j.parents, name)
				}
			}
		}
		h = &heardPosition{}
		j.parents[from] = h
	}
	if !inForce.possible(now) {
		inForce = Position{}
	}
	switch order := p.Compare(inForce); {
	case !p.possible(now):
		v = Implausible
	case order == 0:
		v = Same
	case p.Generation < inForce.Generation:
		v = OlderGeneration
	case order < 0:
		v = OlderIndex
	case j.majority && j.alone(from, p, now):
		v = Implausible
	}
	h.verdict, h.at, h.position = v, now, p
	return v, h.lag.warn(v.Ignored(), now)
}

// alone reports whether most of at least three parents are more than a leap behind p.
func (j *judge) alone(from string, p Position, now time.Time) bool {
	near, all := 1, 1
	for name, x := range j.parents {
		if name == from || x.at.IsZero() || now.Sub(x.at) > speaksFor {
			continue
		}
		all++
		if x.position.within(p) {
			near++
		}
	}
	return all >= 3 && 2*near <= all
}

// lag finds out for how long something has been behind.
type lag struct {
	since, warned time.Time
}

// warn reports whether it is time to log: once lagAfter has passed, and then once a minute for as long as it lasts.
func (l *lag) warn(behind bool, now time.Time) bool {
	switch {
	case !behind:
		*l = lag{}
		return false
	case l.since.IsZero():
		l.since = now
	}
	if now.Sub(l.since) < lagAfter || !l.warned.IsZero() && now.Sub(l.warned) < telemetry.RepeatEvery {
		return false
	}
	l.warned = now
	return true
}

// follower is judge with a lock, counters and log lines.
type follower struct {
	mu      sync.Mutex
	judge   judge
	ignored [Implausible + 1]uint64
}

// Judge decides whether a parent's directive may be put in force where inForce is. It counts and logs what is ignored.
func (c *Child) Judge(parent identity.ID, d *Directive, inForce Position) Verdict {
	p, now := d.Position(), time.Now()
	c.follower.mu.Lock()
	c.follower.judge.majority = c.cfg.ParentRole == identity.RoleGlobal
	v, warn := c.follower.judge.decide(parent.String(), p, inForce, now)
	if v.Ignored() {
		c.follower.ignored[v]++
	}
	c.follower.mu.Unlock()
	if warn {
		c.log.Warn("directives of a parent are ignored: "+v.hint(), "parent", parent.String(), "reason", v.String(),
			"generation", p.Generation, "index", p.Index, "generation_in_force", inForce.Generation, "index_in_force", inForce.Index)
	}
	return v
}

// hint says why directives are ignored and what to do.
func (v Verdict) hint() string {
	switch v {
	case OlderGeneration:
		return "it belongs to a cluster from before the last restore or recovery: wipe its `dir` and add it again, or restore an archive at its leader"
	case OlderIndex:
		return "it is behind the policy in force: see `spillway members` at the global tier; after a loss of all Raft logs restore an archive"
	}
	return "its position cannot be right: check the clocks of both ends, and that parent"
}

// ignoredBy counts the directives that were ignored, by reason.
func (c *Child) ignoredBy() map[string]uint64 {
	c.follower.mu.Lock()
	defer c.follower.mu.Unlock()
	out := map[string]uint64{}
	for v := OlderIndex; v <= Implausible; v++ {
		out[v.String()] = c.follower.ignored[v]
	}
	return out
}

// lastOf is the position and the verdict of a parent's last directive; ok is false before the first.
func (c *Child) lastOf(parent identity.ID) (p Position, v Verdict, ok bool) {
	c.follower.mu.Lock()
	defer c.follower.mu.Unlock()
	h := c.follower.judge.parents[parent.String()]
	if h == nil {
		return p, v, false
	}
	return h.position, h.verdict, true
}
