package uplink

import (
	"cmp"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// Bounds of a directive's position. A position beyond them is ignored.
const (
	// maxGenerationLead is how far ahead of this node's clock a generation may be: a generation is the Unix time of a
	// restore. A larger value lets a faulty parent hold children for longer, a smaller one needs better clocks.
	maxGenerationLead = time.Hour
	// maxIndex is more log entries than a cluster writes in 8,000 years at 1,000 a second.
	maxIndex = 1 << 48
	// maxIndexLead is how many log entries a directive may be ahead of most other parents: several hours of plans and
	// changes.
	maxIndexLead = 1 << 16
	// parentPositionTTL is how long after its last directive a parent counts: directives come every 5 s.
	parentPositionTTL = 3 * directiveInterval
	// lagWarnAfter is how long directives must be ignored before that is logged: parents apply an entry a moment apart.
	lagWarnAfter = 2 * directiveInterval
)

// Position is a point in the cluster's history. The generation is compared first: it rises when the state is restored
// from an archive or recovered from a lost majority, after which log indexes may be lower.
type Position struct {
	Generation uint64 // Unix time in seconds of the restore or recovery; 0: none, or a parent of an earlier release
	Index      uint64 // of the Raft log
}

// Compare orders positions by age.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Index, q.Index))
}

// Position is the position at which the directive was made.
func (d *Directive) Position() Position { return Position{Generation: d.Generation, Index: d.Index} }

// isWithinLead reports whether p is at most maxIndexLead ahead of q.
func (p Position) isWithinLead(q Position) bool {
	return p.Generation > q.Generation || p.Generation == q.Generation && p.Index+maxIndexLead >= q.Index
}

// isPlausible reports whether any cluster can have reached p by now.
func (p Position) isPlausible(now time.Time) bool {
	return p.Index < maxIndex && p.Generation <= uint64(max(0, now.Add(maxGenerationLead).Unix()))
}

// PositionVerdict tells whether a directive may be put in force.
type PositionVerdict uint8

// The verdicts. Newer and Same may be put in force: a directive of the same position has newer peers.
const (
	NewerPosition PositionVerdict = iota
	SamePosition
	OlderIndex
	OlderGeneration
	ImplausiblePosition
)

// String is the verdict's name in metrics and on pages; empty for a directive that may be put in force.
func (v PositionVerdict) String() string {
	switch v {
	case OlderIndex:
		return "older_index"
	case OlderGeneration:
		return "older_generation"
	case ImplausiblePosition:
		return "implausible"
	}
	return ""
}

// IsIgnored reports whether the directive must not be put in force.
func (v PositionVerdict) IsIgnored() bool { return v >= OlderIndex }

// parentPosition is the position of a parent's last directive.
type parentPosition struct {
	position   Position
	receivedAt time.Time
	verdict    PositionVerdict
	lag        lagTimer
}

// positionJudge decides which of several parents' directives may be put in force. With majority, a directive that is
// more than maxIndexLead ahead of most of three or more parents is refused, so that one faulty global node cannot
// hold a gateway at a position that the cluster never reaches. Gateways that are isolated from the global tier are
// far behind without a fault, so local instances do not use it.
type positionJudge struct {
	needsMajority bool
	parents       map[string]*parentPosition
}

// judgePosition compares a parent's directive at p with the position in force.
func (j *positionJudge) judgePosition(from string, p, inForce Position, now time.Time) (v PositionVerdict, warn bool) {
	h := j.parents[from]
	if h == nil {
		if j.parents == nil {
			j.parents = map[string]*parentPosition{}
		}
		if len(j.parents) >= maxParents { // parents are known by certificate, and certificates change more often than addresses
			for name, x := range j.parents {
				if now.Sub(x.receivedAt) > parentPositionTTL {
					delete(j.parents, name)
				}
			}
		}
		h = &parentPosition{}
		j.parents[from] = h
	}
	if !inForce.isPlausible(now) {
		inForce = Position{}
	}
	switch order := p.Compare(inForce); {
	case !p.isPlausible(now):
		v = ImplausiblePosition
	case order == 0:
		v = SamePosition
	case p.Generation < inForce.Generation:
		v = OlderGeneration
	case order < 0:
		v = OlderIndex
	case j.needsMajority && j.isAheadOfMost(from, p, now):
		v = ImplausiblePosition
	}
	h.verdict, h.receivedAt, h.position = v, now, p
	return v, h.lag.shouldWarn(v.IsIgnored(), now)
}

// isAheadOfMost reports whether most of at least three parents are more than maxIndexLead behind p.
func (j *positionJudge) isAheadOfMost(from string, p Position, now time.Time) bool {
	near, all := 1, 1
	for name, x := range j.parents {
		if name == from || x.receivedAt.IsZero() || now.Sub(x.receivedAt) > parentPositionTTL {
			continue
		}
		all++
		if x.position.isWithinLead(p) {
			near++
		}
	}
	return all >= 3 && 2*near <= all
}

// lagTimer measures for how long a lag has lasted.
type lagTimer struct {
	behindSince, warnedAt time.Time
}

// shouldWarn reports whether it is time to log: once lagWarnAfter has passed, and then once a minute while the lag
// lasts.
func (l *lagTimer) shouldWarn(behind bool, now time.Time) bool {
	switch {
	case !behind:
		*l = lagTimer{}
		return false
	case l.behindSince.IsZero():
		l.behindSince = now
	}
	if now.Sub(l.behindSince) < lagWarnAfter || !l.warnedAt.IsZero() && now.Sub(l.warnedAt) < telemetry.MinRepeatInterval {
		return false
	}
	l.warnedAt = now
	return true
}

// lockedPositionJudge is positionJudge with a lock, counters and log lines.
type lockedPositionJudge struct {
	mu            sync.Mutex
	positions     positionJudge
	ignoredCounts [ImplausiblePosition + 1]uint64
}

// JudgeDirective decides whether a parent's directive may be put in force after inForce. It counts and logs ignored
// directives.
func (c *Child) JudgeDirective(parent identity.ID, d *Directive, inForce Position) PositionVerdict {
	p, now := d.Position(), time.Now()
	c.positions.mu.Lock()
	c.positions.positions.needsMajority = c.cfg.ParentRole == identity.RoleGlobal
	v, warn := c.positions.positions.judgePosition(parent.String(), p, inForce, now)
	if v.IsIgnored() {
		c.positions.ignoredCounts[v]++
	}
	c.positions.mu.Unlock()
	if warn {
		c.log.Warn("directives of a parent are ignored: "+v.operatorHint(), "parent", parent.String(), "reason", v.String(),
			"generation", p.Generation, "index", p.Index, "generation_in_force", inForce.Generation, "index_in_force", inForce.Index)
	}
	return v
}

// operatorHint returns why directives are ignored and what to do.
func (v PositionVerdict) operatorHint() string {
	switch v {
	case OlderGeneration:
		return "it belongs to a cluster from before the last restore or recovery: wipe its `dir` and add it again, or restore an archive at its leader"
	case OlderIndex:
		return "it is behind the policy in force: see `spillway members` at the global tier; after a loss of all Raft logs restore an archive"
	}
	return "its position cannot be right: check the clocks of both ends, and that parent"
}

// ignoredByReason counts the ignored directives, by reason.
func (c *Child) ignoredByReason() map[string]uint64 {
	c.positions.mu.Lock()
	defer c.positions.mu.Unlock()
	out := map[string]uint64{}
	for v := OlderIndex; v <= ImplausiblePosition; v++ {
		out[v.String()] = c.positions.ignoredCounts[v]
	}
	return out
}

// lastPositionOf returns the position and the verdict of a parent's last directive; ok is false before the first.
func (c *Child) lastPositionOf(parent identity.ID) (p Position, v PositionVerdict, ok bool) {
	c.positions.mu.Lock()
	defer c.positions.mu.Unlock()
	h := c.positions.positions.parents[parent.String()]
	if h == nil {
		return p, v, false
	}
	return h.position, h.verdict, true
}
