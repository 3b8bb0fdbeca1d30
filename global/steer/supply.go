package steer

import (
	"math"

	"github.com/spillway-lb/spillway/internal/spec"
)

// supply is the capacity of one region for one model.
type supply struct {
	readyRate  float64 // tokens/s of ready workers
	totalRate  float64 // tokens/s of ready and warm workers; 0: the region cannot serve the model
	wait       float64 // seconds
	workerRate float64 // tokens/s of one worker
	coldShare  float64 // 0..1, part of the hot prefixes that its caches lack
	bookedRate float64 // tokens/s of demand without a choice
	segments   [4 + overloadSteps]segment
}

// newSupply prices a region's capacity for a model: its share in two segments, then workers that must wake up first,
// and last the reserve that is kept from steering. Cold workers, which need a load, are no capacity. typical is the
// assumed rate of a worker, in tokens/s, where none of the region's own is ready.
func newSupply(decl *spec.Region, m *ModelCapacity, ramp, typical float64) supply {
	out := supply{
		readyRate: clampAmount(m.Rate), wait: max(0, clampFinite(m.Wait, maxWaitSeconds)),
		coldShare: 1 - max(0, clampFinite(m.CachedPrefixShare, 1)),
	}
	if out.workerRate = out.readyRate / max(1, clampAmount(m.Ready)); out.workerRate <= 0 {
		out.workerRate = typical
	}
	out.totalRate = out.readyRate + out.workerRate*clampAmount(m.Warm)
	left := math.Inf(1)
	if q, ok := decl.Quotas[m.Name]; ok {
		left = clampAmount(q)
	}
	share := maxShareOf(decl)
	for i, s := range []segment{
		{out.readyRate * share * freeShare, 0},
		{out.readyRate * share * (1 - freeShare), priceBusy},
		{out.workerRate * clampAmount(m.Warm) * share, wakePrice(m.WakeSeconds)},
		{out.readyRate * (1 - share), priceReserve},
	} {
		s.room = min(s.room*ramp, left)
		left -= s.room
		out.segments[i] = s
	}
	out.addOverloadSegments()
	return out
}

// addOverloadSegments adds what the region takes beyond its capacity when no region has room.
func (s *supply) addOverloadSegments() {
	all := 0.0
	for _, g := range s.segments[:4] {
		all += g.room
	}
	for i := range overloadSteps {
		s.segments[4+i] = segment{all * (overloadGrowth - 1), priceReserve + priceOverloadStep*float64(1+i)}
		all *= overloadGrowth
	}
}

func maxShareOf(r *spec.Region) float64 {
	if r.MaxShare > 0 && r.MaxShare <= 1 {
		return r.MaxShare
	}
	return 0.85
}

// wakeSpreadSeconds is the time over which the wait for a waking worker is averaged, in seconds: about the lifetime
// of a plan and of the answers made from it.
const wakeSpreadSeconds = 60

// wakePrice is the price of warm workers that take the given seconds to become ready: clients that arrive in that
// time wait half of it on average, later ones not at all. It never exceeds the price of the reserve, which is used
// after them.
func wakePrice(seconds float64) float64 {
	s := max(0, clampFinite(seconds, wakeSpreadSeconds))
	return min(max(priceWarm, s*s/2/wakeSpreadSeconds), 0.9*priceReserve)
}

// prefillSeconds is how long one worker takes for a prompt of the given number of tokens.
func (s *supply) prefillSeconds(tokens int) float64 {
	if tokens <= 0 || s.workerRate <= 0 {
		return 0
	}
	return min(float64(tokens)/s.workerRate, maxWaitSeconds)
}

// delayCost is the cost of the model's queue and of cold caches, in seconds, for prompts that share a prefix of the
// given number of tokens.
func (s *supply) delayCost(prefixTokens int) float64 {
	return s.wait + s.coldShare*s.prefillSeconds(prefixTokens)
}

// steeredRoom is the capacity within the region's share that is not booked, in tokens/s.
func (s *supply) steeredRoom() float64 {
	return s.segments[0].room + s.segments[1].room + s.segments[2].room - s.bookedRate
}

// remainingSegments is the capacity that is not booked, cheapest first, as fractions of total.
func (s *supply) remainingSegments(out []segment, total float64) []segment {
	booked := s.bookedRate
	for _, g := range s.segments {
		gone := min(booked, g.room)
		booked -= gone
		out = append(out, segment{min((g.room-gone)/total, 2), g.price})
	}
	return out
}

// nextPrice is the price of a little more at a load in tokens/s, and for how many tokens/s it holds.
func (s *supply) nextPrice(load float64) (price, room float64) {
	end, slack := 0.0, s.negligibleLoad()
	for _, g := range s.segments {
		end += g.room
		if end-load > slack {
			return g.price, end - load
		}
	}
	return priceUnserved, math.Inf(1)
}

// lastPrice is the saving by a little less at a load in tokens/s, and for how many tokens/s it holds.
func (s *supply) lastPrice(load float64) (price, used float64) {
	begin, slack := 0.0, s.negligibleLoad()
	price, used = 0, load
	for _, g := range s.segments {
		if load-begin <= slack {
			return price, used
		}
		price, used = g.price, load-begin
		begin += g.room
	}
	if load-begin > slack {
		return priceUnserved, load - begin
	}
	return price, used
}

// negligibleLoad is the load below which a supply counts as empty.
func (s *supply) negligibleLoad() float64 { return s.totalRate * epsAmount }

// Prices of capacity, in seconds, that are used to decide whether a plan is worth publishing. The share is a target
// and capacity the limit, and being exact to the last token does not justify a new plan. So the reserve, which
// planning uses last and at a high price, is judged by its cost to the clients served there: a wait that grows toward
// the limit, in two steps as in reference 5.1 (there 0.12 s and 0.5 s). The first step is a little above the longest
// usual detour, because otherwise a full region would stay above its target permanently.
const (
	reserveNearShare = 2.0 / 3 // of the reserve
	reserveNearCost  = 0.16
	reserveFarCost   = 0.5
	maxJudgedPrice   = 2.0
)

// judgedCost is the cost of an amount of the segment, filled from its start: seconds times tokens/s.
func (g *segment) judgedCost(part float64) float64 {
	if g.price == priceReserve {
		low := math.Min(part, g.room*reserveNearShare)
		return low*reserveNearCost + (part-low)*reserveFarCost
	}
	return part * math.Min(g.price, maxJudgedPrice)
}

// loadCost is the cost of a load in addition to latency, in seconds times tokens/s.
func (s *supply) loadCost(load float64) float64 {
	sum := 0.0
	for i := range s.segments {
		part := math.Max(0, math.Min(load, s.segments[i].room))
		sum += s.segments[i].judgedCost(part)
		load -= part
	}
	if load > s.negligibleLoad() {
		sum += load * maxJudgedPrice
	}
	return sum
}
