package pick

import (
	"math"
	"slices"
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
// So long, too, is waited for other claims to take what fits several.
const Grace = 2 * time.Second

const (
	// settleAfter is how long after the first byte is waited at least, so that the events of that step are in.
	settleAfter = 50 * time.Millisecond
	// lag is how long after the first byte a chain may show that is linked where none showed in time: later ones are others'.
	lag = 500 * time.Millisecond
	// maxTied is how many chains a prompt may rest on that could be any of them.
	maxTied = 8
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
	found       [maxTied]uint64
	fits        int // chains that fit; found has the first of them
	rivals      int // other prompts whose claims were seen to fit those chains, of an answer that did not say what was cached
}

// Verdicts on a claim.
type linkage uint8

const (
	linkNone    linkage = iota // no chain fits
	linkSeveral                // any of a few does, and each is there
	linkLone                   // one does, but the prompt may have been cached whole and the chain be another's
	linkUnsure                 // more than one may
	linkVoid                   // nothing had to be stored, or more than is looked at
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
		if v := x.link(worker, m, &n); !v.waits() {
			m.claimed[v.outcome()]++
			return
		}
	}
	if len(m.claims) >= m.mostClaim {
		m.claims = append(m.claims[:0], m.claims[1:]...) // the oldest stays a guess
	}
	n.blocks = append([]uint64(nil), c.Blocks...)
	m.claims = append(m.claims, n)
}

// Settle looks at the claims of a worker that wait; call it a few times a second. It says whether the worker's events have
// fallen silent while its answers say that it caches.
func (x *Index) Settle(worker int32, now time.Time) (silent bool) {
	m := x.mirror(worker)
	if m == nil {
		return false
	}
	t := now.UnixMilli()
	for again := true; again; { // what one takes is no other's
		again = false
		kept := m.claims[:0]
		for i := range m.claims {
			c := m.claims[i]
			if t < c.ready {
				kept = append(kept, c)
				continue
			}
			v := x.link(worker, m, &c)
			if v.waits() && t < c.due {
				kept = append(kept, c)
				continue
			}
			o := x.conclude(worker, m, &c, v)
			again = again || o == linkDone.outcome()
			m.claimed[o]++
		}
		clear(m.claims[len(kept):])
		m.claims = kept
	}
	return m.silent >= maxSilent
}

// waits says that more may be known of the claim later.
func (v linkage) waits() bool { return v == linkNone || v == linkSeveral || v == linkLone }

// conclude ends a claim that need not or cannot wait any longer.
func (x *Index) conclude(worker int32, m *mirror, c *claim, v linkage) Outcome {
	switch {
	case v == linkNone:
		return x.refute(worker, m, c)
	case c.start < 0 && c.fits > 0 && c.rivals >= c.fits: // each of the chains may be another's, and its own cached before
		return Unsure
	case v == linkSeveral && m.kept+c.fits*int(c.need)*2 <= 2*m.most:
		x.tieAll(worker, m, c)
		return Shared
	case v == linkLone:
		x.take(worker, m, c, c.found[0])
		return linkDone.outcome()
	}
	return v.outcome()
}

// refute takes the credit away from a prompt that was never stored, except for what the answer itself said was cached.
// Where nothing was heard in its time, the heard is forgotten, or another prompt that begins alike may have stored it as
// well (engines tell of what two store at once only once), nothing is known.
func (x *Index) refute(worker int32, m *mirror, c *claim) Outcome {
	if m.heard < c.sent {
		m.silent++
		return Unheard
	}
	if c.cached < 0 || m.forgot >= c.sent || m.lost >= c.sent || m.hides(c) {
		return Unsure
	}
	l := &x.lists[worker]
	for i, h := range c.blocks {
		if c.tokensTo(i) > float64(c.cached) && l.remove(h) > 0 {
			x.unset(h, worker)
		}
	}
	return Refuted
}

// hides says whether something longer that was stored in the claim's time could hold its prompt.
func (m *mirror) hides(c *claim) bool {
	return slices.ContainsFunc(m.runs, func(r run) bool {
		return r.at >= c.sent && r.at <= c.last && (r.depth == 0 || r.depth >= c.need && r.depth-r.n < c.need)
	})
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
	for _, until := range [...]int64{c.ready, c.last, math.MaxInt64} {
		if seen := m.sift(c, until); seen != (sieve{}) {
			return x.decide(worker, m, c, seen, until)
		}
	}
	return linkNone
}

// decide says what to make of the chains of the first span that has any: an engine tells of a prompt before it answers,
// so what comes later is another's.
func (x *Index) decide(worker int32, m *mirror, c *claim, seen sieve, until int64) linkage {
	if c.start < 0 && c.fits > 0 {
		c.rivals = max(c.rivals, m.contested(c))
	}
	switch {
	case until > c.last || seen[fitMaybe]+seen[fitGone] > 0 || c.fits > maxTied:
		return linkUnsure
	case c.fits > 1:
		return linkSeveral
	case c.start < 0 && (c.rivals > 0 || !m.anew(c.found[0], c)):
		return linkLone
	}
	x.take(worker, m, c, c.found[0])
	return linkDone
}

// tieAll lets the claim's byte blocks rest on each of the chains that may be theirs: they go with the first block of any,
// and so are never believed for longer than they are there. Where the beginning of any is gone, nothing is known of it.
func (x *Index) tieAll(worker int32, m *mirror, c *claim) {
	from := int32(1)
	for _, key := range c.found[:c.fits] {
		_, low := m.path(key, c.need)
		from = max(from, low)
	}
	for _, key := range c.found[:c.fits] {
		path, _ := m.path(key, c.need)
		x.tie(worker, m, c, path, from, false)
	}
}

// path is the chain that ends with the block of that key, by depth, as places plus one, and the depth from which on it is
// there.
func (m *mirror) path(key uint64, need int32) (path []int32, low int32) {
	path, low = make([]int32, need+1), need+1
	for depth := need; depth > 0 && key != 0; depth-- {
		n := m.at[key]
		if n == 0 {
			break
		}
		path[depth], low = n, depth
		key = m.blocks[n-1].parent
	}
	return path, low
}

// take takes a chain that is the claim's for sure, and lets the claim's byte blocks rest on it.
func (x *Index) take(worker int32, m *mirror, c *claim, key uint64) {
	path, low := m.path(key, c.need)
	for depth := low; depth <= c.need; depth++ {
		b := &m.blocks[path[depth]-1]
		if b.root == 0 && b.depth == 0 { // a stub: now its depth is known
			b.depth = depth
		}
		if b.fresh > 0 && (depth == c.need || c.start >= 0 && depth > c.start) {
			b.fresh--
		}
	}
	x.tie(worker, m, c, path, low, true)
}

// tie lets the claim's byte blocks rest on a chain, from some depth on.
func (x *Index) tie(worker int32, m *mirror, c *claim, path []int32, low int32, sure bool) {
	from := int32(0)
	for i, h := range c.blocks {
		to := int32(min(math.Ceil(c.tokensTo(i)/float64(m.tokens)), maxNeed+1))
		if to > c.need {
			return
		}
		if from+1 >= low && !x.rest(worker, m, h, int32(BlockSize(i)/fineSize), path[from+1:to+1], sure) {
			return
		}
		from = to
	}
}

// rest lets one byte block rest on the engine blocks of a path.
func (x *Index) rest(worker int32, m *mirror, h uint64, size int32, path []int32, sure bool) bool {
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
		if x.lists[worker].remove(h) == 0 {
			x.set(h, worker)
		}
		m.linked.add(h, size)
	}
	n, _ := m.linked.at.get(h)
	for int(n) > len(m.ends) {
		m.ends = append(m.ends, end{})
	}
	if m.ends[n-1] = (end{}); sure {
		m.ends[n-1] = end{key: last.key, depth: m.depth(last)}
	}
	x.trim(worker)
	return true
}
