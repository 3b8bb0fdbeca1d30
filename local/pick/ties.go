package pick

import "math"

// drawNearTie returns the candidate that ranks first among those nearly as good as the best, by an order of all workers
// that is drawn at random. The order is one random number and depends on no list of the near-ties, so the one that ranks
// first can be found in two ways: by listing them, or, where most workers are near-ties, by going through the order from
// its beginning.
func drawNearTie(p *placement) int32 {
	best := math.Inf(1)
	for _, at := range p.candidates {
		if c := p.costs[at]; c < best {
			best = c
		}
	}
	order := newTieOrder(len(p.Workers), p.rng.Uint64())
	limit := best + nearTieSlack(best)
	if p.searching && best < math.Inf(1) {
		if at := findFirstTie(p, &order, limit); at >= 0 {
			return at
		}
	}
	chosen, first := int32(-1), uint32(math.MaxUint32)
	for _, all := range []bool{false, true} { // all of them where no cost is a number
		for _, at := range p.candidates {
			if rank := order.rankOf(uint32(at)); rank <= first && (all || p.costs[at] <= limit) {
				chosen, first = at, rank
			}
		}
		if chosen >= 0 {
			break
		}
	}
	return chosen
}

// findFirstTie examines workers until all near-ties are among the candidates and returns -1, or returns the near-tie that
// ranks first.
func findFirstTie(p *placement, order *tieOrder, limit float64) int32 {
	s := p.groups
	open := 0
	for _, bound := range s.values {
		if bound <= p.pruner.limit {
			open++
		}
	}
	if open > listedTieGroups {
		for rank := uint32(0); rank < maxTieRanks; rank++ {
			at := order.workerAt(rank)
			if int(at) >= len(p.Workers) {
				continue
			}
			p.examineWorker(int(at))
			if p.costs[at] <= limit {
				return int32(at)
			}
		}
	}
	if open > 0 {
		for g, bound := range s.values {
			if bound <= p.pruner.limit {
				p.visitGroup(g)
			}
		}
	}
	return -1
}

// tieOrder is a random order of n workers: a bijection of the numbers below a power of two, of which those from n on are
// no workers.
type tieOrder struct {
	mask, add    uint32
	factor, back [2]uint32 // odd factors and their inverses
	shift        uint
}

func newTieOrder(n int, random uint64) tieOrder {
	o := tieOrder{mask: 1, add: uint32(random), shift: 1}
	bits := uint(1)
	for int(o.mask) < n-1 {
		o.mask = o.mask<<1 | 1
		bits++
	}
	o.shift = (bits + 1) / 2
	mixed := random * 0x9e3779b97f4a7c15 // so that the second factor does not follow from the first
	for i, f := range [2]uint32{uint32(random>>32) | 1, uint32(mixed>>32) | 1} {
		inverse := f // correct for 3 bits; each step doubles them
		for range 4 {
			inverse *= 2 - f*inverse
		}
		o.factor[i], o.back[i] = f, inverse
	}
	return o
}

// rankOf returns a worker's rank.
func (o *tieOrder) rankOf(worker uint32) uint32 {
	x := (worker + o.add) & o.mask
	for _, f := range o.factor {
		x = x * f & o.mask
		x ^= x >> o.shift
	}
	return x
}

// workerAt returns the worker of a rank, or a number that is none.
func (o *tieOrder) workerAt(rank uint32) uint32 {
	x := rank
	for i := range o.back {
		x ^= x >> o.shift
		x = x * o.back[len(o.back)-1-i] & o.mask
	}
	return (x - o.add) & o.mask
}
