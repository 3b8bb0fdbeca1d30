package pick

import (
	"math"
	"slices"
)

// Which of the chains that an engine has stored can be a claim's.

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
	if b != nil && r.precedes(b) {
		b = nil
	}
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
	return b.key, m.fits(r, b, c)
}

// fits says whether all that the answer had to compute was stored in its time and is nobody else's, and whether what is
// known of the prompt's beginning is that chain's beginning. Where the chain's own beginning is not known, that is all.
func (m *mirror) fits(r *run, b *engineBlock, c *claim) fitness {
	known, at := m.knownEnd(c)
	computed := c.start + 1
	if c.start < 0 {
		computed = c.need
	}
	for depth := c.need; depth > 0; depth-- {
		switch {
		case depth == at:
			return yes(b.key == known)
		case depth >= computed && b.stored < c.sent:
			return fitNo
		case depth >= computed && r.precedes(b):
			return fitGone
		case depth >= computed && b.fresh <= 0:
			return m.taken(b)
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

// taken is how a chain fits that another claim has: not at all, unless that may have been the same prompt's, and what was
// known of it went with the chain's beginning.
func (m *mirror) taken(b *engineBlock) fitness {
	for b.parent != 0 {
		if b = m.get(b.parent); b == nil {
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
		n, ok := m.linked.at.get(h)
		if !ok {
			break
		}
		if e := m.ends[n-1]; e.depth > 0 && e.depth < c.need {
			key, depth = e.key, e.depth
		}
	}
	return key, depth
}

// sieve counts the chains of a span by how they fit.
type sieve [fitYes + 1]int

// sift looks for the claim's chain among what was stored after it was sent and until then.
func (m *mirror) sift(c *claim, until int64) (seen sieve) {
	c.fits = 0
	for i := range m.runs { // the newest first
		r := &m.runs[(m.runAt+2*len(m.runs)-1-i)%len(m.runs)]
		if r.at < c.sent {
			break
		}
		if r.at > until {
			continue
		}
		key, f := m.candidate(r, c)
		if f == fitYes {
			if slices.Contains(c.found[:min(c.fits, maxTied)], key) {
				continue
			}
			if c.fits < maxTied {
				c.found[c.fits] = key
			}
			c.fits++
		}
		if f != fitNo {
			seen[f]++
		}
	}
	return seen
}

// anew says whether all of a chain was stored in the claim's time: then nothing of the prompt had been cached.
func (m *mirror) anew(key uint64, c *claim) bool {
	for b := m.get(key); b != nil && b.stored >= c.sent && b.fresh > 0; b = m.get(b.parent) {
		if b.parent == 0 {
			return b.root == 0 && b.depth == 1
		}
	}
	return false
}

// contested counts the other prompts whose claims wait and that fit any of the chains found.
func (m *mirror) contested(c *claim) (others int) {
	fits := c.found[:min(c.fits, maxTied)]
	seen := []uint64{c.blocks[len(c.blocks)-1]} // a block's name is that of all before it as well
	for i := range m.claims {
		o := m.claims[i]
		if slices.Contains(seen, o.blocks[len(o.blocks)-1]) {
			continue
		}
		m.sift(&o, math.MaxInt64)
		if slices.ContainsFunc(o.found[:min(o.fits, maxTied)], func(key uint64) bool { return slices.Contains(fits, key) }) {
			seen = append(seen, o.blocks[len(o.blocks)-1])
			others++
		}
	}
	return others
}
