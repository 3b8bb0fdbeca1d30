package pick

import (
	"math"
	"time"
)

// Claim is what an answer has told of its prompt.
type Claim struct {
	// Blocks of the prompt, and the length in bytes of what they were hashed from.
	Blocks []uint64
	Bytes  int64
	// Prompt is its length as the engine has counted it, in tokens.
	Prompt int64
	// Cached is how much of it was cached; -1 when the engine does not say.
	Cached int64
	// Output is the length of the answer, in tokens.
	Output int64
	// Sent is when it was sent to the worker, and First when its first byte came.
	Sent, First time.Time
}

// Grace is how long after the first byte a prompt's blocks may show among the events; after it they count as not stored.
const Grace = 2 * time.Second

const (
	// settleAfter is how long after the first byte is waited at least, so that the events of that step are in.
	settleAfter = 50 * time.Millisecond
	// lag is how long after the first byte a chain may show that is linked: later ones are others'.
	lag = 500 * time.Millisecond
)

// maxSilent is how many claims in a row may find no event at all before the stream counts as silent.
const maxSilent = 3

const (
	// maxNeed bounds a prompt that is linked, in engine blocks.
	maxNeed          = 1 << 17
	usualBlockTokens = 64
)

// claim is a Claim that waits for its events.
type claim struct {
	blocks      []uint64
	bytes       int64
	prompt      int64
	cached      int64
	output      int64
	start, need int32 // engine blocks that were cached, -1 when not known, and that there must be
	end         int32 // that there may be when the answer is over
	sent        int64 // milliseconds
	ready, due  int64
	last        int64 // when its chain may show at the latest
}

// Verdicts on a claim.
type linkage uint8

const (
	linkNone   linkage = iota // no chain fits
	linkUnsure                // more than one may
	linkVoid                  // nothing had to be stored, or more than is looked at
	linkDone
)

// Claim links an answer's prompt with the engine's blocks, now or within Grace.
func (x *Index) Claim(worker int32, c *Claim, now time.Time) {
	m := x.mirror(worker)
	if m == nil || len(c.Blocks) == 0 || c.Bytes <= 0 || c.Prompt <= 0 {
		return
	}
	first := c.First
	if first.Before(c.Sent) {
		first = c.Sent
	}
	n := claim{
		blocks: c.Blocks, bytes: c.Bytes, prompt: min(c.Prompt, maxAsk), cached: min(c.Cached, c.Prompt), output: max(0, min(c.Output, maxAsk)),
		sent: c.Sent.UnixMilli(), ready: first.Add(settleAfter).UnixMilli(), due: first.Add(Grace).UnixMilli(), last: first.Add(lag).UnixMilli(),
	}
	if now.UnixMilli() >= n.ready && m.tokens != 0 {
		if x.link(worker, m, &n) != linkNone {
			return
		}
	}
	if len(m.claims) >= m.mostClaim {
		m.claims = append(m.claims[:0], m.claims[1:]...) // the oldest stays a guess
	}
	n.blocks = append([]uint64(nil), c.Blocks...)
	m.claims = append(m.claims, n)
}

// Settle looks at the claims of a worker that wait; call it a few times a second. It says whether the worker's events have fallen silent while its
// answers say that it caches.
func (x *Index) Settle(worker int32, now time.Time) (silent bool) {
	m := x.mirror(worker)
	if m == nil {
		return false
	}
	t := now.UnixMilli()
	kept := m.claims[:0]
	for i := range m.claims {
		c := m.claims[i]
		if t < c.ready {
			kept = append(kept, c)
			continue
		}
		switch found := x.link(worker, m, &c); {
		case found != linkNone: // what is not sure stays a guess
		case t < c.due:
			kept = append(kept, c)
		default:
			x.refute(worker, m, &c)
		}
	}
	clear(m.claims[len(kept):])
	m.claims = kept
	return m.silent >= maxSilent
}

// refute takes the credit away from a prompt that was never stored, except for what the answer itself said was cached.
// Where nothing was heard in its time, or the heard is forgotten, nothing is known.
func (x *Index) refute(worker int32, m *mirror, c *claim) {
	if m.heard < c.sent {
		m.silent++
		return
	}
	if c.cached < 0 || m.forgot >= c.sent || m.lost >= c.sent {
		return
	}
	l := &x.lists[worker]
	for i, h := range c.blocks {
		if c.tokensTo(i) > float64(c.cached) && l.remove(h) {
			x.unset(h, worker)
		}
	}
}

// tokensTo is where byte block i ends, in tokens of that prompt.
func (c *claim) tokensTo(i int) float64 {
	return float64(blockEnd(i+1)) * float64(c.prompt) / float64(c.bytes)
}

// link finds the engine's chain for a claim and lets the byte blocks rest on it.
func (x *Index) link(worker int32, m *mirror, c *claim) linkage {
	size := int64(m.tokens)
	if size == 0 {
		size = usualBlockTokens // nothing has come yet
	}
	c.need, c.start = int32(min(c.prompt/size, maxNeed+1)), -1
	if c.cached >= 0 {
		c.start = int32(min(c.cached/size, maxNeed+1))
	}
	if c.need == 0 || c.need > maxNeed || c.start >= c.need {
		return linkVoid
	}
	c.end = int32(min((c.prompt+c.output)/size, 2*maxNeed))
	if m.forgot >= c.sent {
		return linkUnsure
	}
	found, seen := uint64(0), [fitYes + 1]int{}
	for i := range m.runs { // the newest first
		r := &m.runs[(m.runAt+2*len(m.runs)-1-i)%len(m.runs)]
		if r.at < c.sent {
			break
		}
		key, f := m.candidate(r, c)
		if f == fitYes && r.at > c.last {
			f = fitMaybe
		}
		if f == fitYes {
			if key == found {
				continue
			}
			found = key
		}
		seen[f]++
	}
	switch {
	case seen[fitYes] == 0 && seen[fitMaybe] == 0:
		return linkNone
	case seen[fitYes] != 1 || seen[fitMaybe]+seen[fitGone] > 0:
		return linkUnsure
	}
	x.tie(worker, m, c, found)
	return linkDone
}

// fitness says whether a run can be a claim's.
type fitness uint8

const (
	fitNo    fitness = iota
	fitGone          // it could, and is not there any more
	fitMaybe         // it could, and where it begins is not known
	fitYes
)

// candidate is the block of a run that ends the claim's prompt, if the run can be the prompt's.
func (m *mirror) candidate(r *run, c *claim) (key uint64, f fitness) {
	b := m.get(r.last)
	depth := r.depth
	if b != nil {
		depth = m.depth(b)
	}
	if depth == 0 {
		// Its beginning is not known: it fits if it begins where the answer says that the cache ended.
		if b == nil || c.start < 0 || b.depth == 0 {
			return 0, fitMaybe
		}
		depth = b.depth + c.start
	}
	if depth < c.need || depth-r.n >= c.need || depth > c.end || c.start < 0 && depth > c.need {
		return 0, fitNo // without a word on what was cached only a chain of that very length will do
	}
	for ; b != nil && depth > c.need; depth-- {
		b = m.get(b.parent)
	}
	if b == nil {
		return 0, fitGone
	}
	return b.key, m.fits(b, c)
}

// fits says whether all that the answer had to compute was stored in its time and is nobody else's, and whether what is
// known of the prompt's beginning is that chain's beginning. Where the chain's own beginning is not known, that is all.
func (m *mirror) fits(b *engineBlock, c *claim) fitness {
	known, at := m.knownEnd(c)
	computed := c.start + 1
	if c.start < 0 {
		computed = c.need
	}
	for depth := c.need; depth > 0; depth-- {
		switch {
		case depth == at:
			return yes(b.key == known)
		case depth >= computed && (b.stored < c.sent || b.fresh <= 0):
			return fitNo
		case b.parent == 0 && b.root == 0 && b.depth == 1: // a prompt's first
			return yes(depth == 1 && at == 0)
		case b.parent == 0:
			return yes(depth < computed) // the block that its engine began to talk at
		}
		if b = m.get(b.parent); b == nil {
			if at == 0 && depth <= computed {
				return fitYes
			}
			return fitGone
		}
	}
	return fitNo
}

func yes(b bool) fitness {
	if b {
		return fitYes
	}
	return fitNo
}

// knownEnd is the engine block on which the longest known beginning of the prompt ends, and its depth; 0 for none.
func (m *mirror) knownEnd(c *claim) (key uint64, depth int32) {
	for _, h := range c.blocks {
		n, ok := m.linked.at[h]
		if !ok {
			break
		}
		if e := m.ends[n-1]; e.depth < c.need {
			key, depth = e.key, e.depth
		}
	}
	return key, depth
}

// tie lets the claim's byte blocks rest on the chain that ends with the block of that key.
func (x *Index) tie(worker int32, m *mirror, c *claim, key uint64) {
	path := make([]int32, c.need+1) // by depth, plus one
	low := c.need + 1
	for depth := c.need; depth > 0; depth-- {
		n := m.at[key]
		if n == 0 {
			break
		}
		b := &m.blocks[n-1]
		if b.root == 0 && b.depth == 0 { // a stub: now its depth is known
			b.depth = depth
		}
		if b.fresh > 0 && (depth == c.need || c.start >= 0 && depth > c.start) {
			b.fresh--
		}
		path[depth], low = n, depth
		if key = b.parent; key == 0 {
			break
		}
	}
	from := int32(0)
	for i, h := range c.blocks {
		to := int32(min(math.Ceil(c.tokensTo(i)/float64(m.tokens)), maxNeed+1))
		if to > c.need {
			return
		}
		if from+1 >= low && !x.rest(worker, m, h, path[from+1:to+1]) {
			return
		}
		from = to
	}
}

// rest lets one byte block rest on the engine blocks of a path.
func (x *Index) rest(worker int32, m *mirror, h uint64, path []int32) bool {
	if len(path) == 0 {
		return true // two byte blocks within one of the engine's: the first stands for it
	}
	for _, n := range path {
		if !m.rest(&m.blocks[n-1], h) {
			return false
		}
	}
	last := &m.blocks[path[len(path)-1]-1]
	if !m.linked.touch(h) {
		if !x.lists[worker].remove(h) {
			x.set(h, worker)
		}
		m.linked.add(h)
	}
	n := m.linked.at[h]
	for int(n) > len(m.ends) {
		m.ends = append(m.ends, end{})
	}
	m.ends[n-1] = end{key: last.key, depth: m.depth(last)}
	x.trim(worker)
	return true
}
