package steer

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// anyMarket draws a small market in whole units, so that some best assignment is whole as well.
func anyMarket(t *rapid.T, clients, regions, units int) (*market, int) {
	m := &market{regions: regions + 1, clients: clients}
	total := 0
	demand := make([]int, clients)
	for c := range demand {
		demand[c] = rapid.IntRange(0, units).Draw(t, "demand")
		total += demand[c]
	}
	if total == 0 {
		demand[0], total = 1, 1
	}
	unit := 1 / float64(total)
	for _, d := range demand {
		m.demand = append(m.demand, float64(d)*unit)
	}
	moves := rapid.Bool().Draw(t, "moves cost")
	if moves {
		for range clients {
			m.move = append(m.move, rapid.Float64Range(0, 0.1).Draw(t, "move"))
		}
	}
	for c := range clients {
		for range regions {
			k := rapid.Float64Range(-0.02, 0.3).Draw(t, "cost")
			if rapid.IntRange(0, 4).Draw(t, "closed") == 0 {
				k = math.Inf(1)
			}
			m.cost = append(m.cost, k)
			if moves {
				m.kept = append(m.kept, unit*float64(rapid.IntRange(0, demand[c]).Draw(t, "kept")))
			}
		}
		m.cost = append(m.cost, 0)
		if moves {
			m.kept = append(m.kept, math.Inf(1))
		}
	}
	for range regions {
		var segs []segment
		price := 0.0
		for range rapid.IntRange(0, 4).Draw(t, "segments") {
			segs = append(segs, segment{unit * float64(rapid.IntRange(0, units).Draw(t, "room")), price})
			price += rapid.Float64Range(0, 0.2).Draw(t, "dearer")
		}
		m.segs = append(m.segs, segs)
	}
	m.segs = append(m.segs, []segment{{math.Inf(1), priceNowhere}})
	return m, total
}

// brute tries every whole assignment and returns the least value.
func brute(m *market, total int) float64 {
	x := make([]float64, len(m.cost))
	best := math.Inf(1)
	var place func(c, r, left int)
	place = func(c, r, left int) {
		if c == m.clients {
			best = math.Min(best, m.value(x))
			return
		}
		i := c*m.regions + r
		if r == m.regions-1 {
			x[i] = float64(left) / float64(total)
			next := 0
			if c+1 < m.clients {
				next = int(math.Round(m.demand[c+1] * float64(total)))
			}
			place(c+1, 0, next)
			x[i] = 0
			return
		}
		for n := 0; n <= left; n++ {
			if n > 0 && math.IsInf(m.cost[i], 1) {
				break
			}
			x[i] = float64(n) / float64(total)
			place(c, r+1, left-n)
		}
		x[i] = 0
	}
	place(0, 0, int(math.Round(m.demand[0]*float64(total))))
	return best
}

// bound is a lower bound on any assignment's value: the Lagrangian dual at the prices given. It is computed from the
// market alone, so an assignment that meets it is the best, whoever found it.
func bound(m *market, price []float64) float64 {
	sum := 0.0
	for c := range m.clients {
		sum += cheapestMix(m, c, price)
	}
	for r, segs := range m.segs {
		for _, s := range segs {
			if gain := price[r] - s.price; gain > 0 {
				sum -= gain * s.room
			}
		}
	}
	return sum
}

// cheapestMix is the least that client c can pay at the prices: what may stay goes first where that is cheapest.
func cheapestMix(m *market, c int, price []float64) float64 {
	left, sum := m.demand[c], 0.0
	used := make([]bool, m.regions)
	for left > 0 {
		best, amount, pay := -1, 0.0, math.Inf(1)
		for r := range m.regions {
			i := c*m.regions + r
			k := m.cost[i] + price[r]
			if m.kept != nil {
				k += m.move[c]
			}
			if k < pay {
				best, amount, pay = -1, left, k
			}
			if m.kept != nil && !used[r] && m.kept[i] > 0 && m.cost[i]+price[r] < pay {
				best, amount, pay = r, math.Min(left, m.kept[i]), m.cost[i]+price[r]
			}
		}
		if best >= 0 {
			used[best] = true
		}
		sum += amount * pay
		left -= amount
	}
	return sum
}

func feasible(t interface{ Fatalf(string, ...any) }, m *market, f *flow) {
	for c := range m.clients {
		sum := 0.0
		for r := range m.regions {
			x := f.x[c*m.regions+r]
			if !(x >= 0) || x > dust && math.IsInf(m.cost[c*m.regions+r], 1) {
				t.Fatalf("client %d has %v in region %d", c, x, r)
			}
			sum += x
		}
		if math.Abs(sum-m.demand[c]) > 1e-7 {
			t.Fatalf("client %d has %v of its %v", c, sum, m.demand[c])
		}
	}
}

func TestFlowEqualsBruteForce(t *testing.T) {
	runs, gaveUp := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m, total := anyMarket(t, 3, 3, 3)
		best := brute(m, total)
		var f flow
		f.cold(m)
		feasible(t, m, &f)
		if got := m.value(f.x); got > best+1e-6+0.001*math.Abs(best) || got < best-1e-6 {
			t.Fatalf("cold costs %v, the best is %v", got, best)
		}
		start := make([]float64, len(f.x))
		for i := range start {
			start[i] = rapid.Float64Range(0, 1).Draw(t, "start") * m.demand[i/m.regions]
		}
		if runs++; !f.warm(m, start) {
			gaveUp++
			f.solve(m, start)
		}
		feasible(t, m, &f)
		if got := m.value(f.x); got > best+1e-6+0.001*math.Abs(best) || got < best-1e-6 {
			t.Fatalf("warm costs %v, the best is %v", got, best)
		}
	})
	if gaveUp > 3+runs/100 { // it does once in some thousands: see TestSolveWhereWarmGivesUp
		t.Errorf("warm gave up %d of %d times", gaveUp, runs)
	}
}

func TestFlowMeetsItsLowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, _ := anyMarket(t, rapid.IntRange(1, 25).Draw(t, "clients"), rapid.IntRange(1, 10).Draw(t, "regions"), 9)
		var f flow
		f.cold(m)
		feasible(t, m, &f)
		proof(t, m, &f, "cold")
		start := make([]float64, len(f.x))
		for i := range start {
			start[i] = rapid.Float64Range(0, 1).Draw(t, "start") * m.demand[i/m.regions]
		}
		f.solve(m, start)
		feasible(t, m, &f)
		proof(t, m, &f, "warm")
	})
}

// proof checks the value found against the dual at the flow's own prices: no assignment can be better than that.
func proof(t interface{ Fatalf(string, ...any) }, m *market, f *flow, what string) {
	value, least := m.value(f.x), bound(m, f.prices(nil))
	if value > least+1e-6+0.001*math.Abs(least) {
		t.Fatalf("%s costs %v, the proof says %v is possible", what, value, least)
	}
}

// TestSolveWhereWarmGivesUp: two cycles take turns in undoing a thousandth of each other's work, each time saving something,
// and are still at it when the bound comes. What is solved then from nothing is the best.
func TestSolveWhereWarmGivesUp(t *testing.T) {
	none := math.Inf(1)
	m := &market{
		regions: 4, clients: 2, demand: []float64{0.5, 0.5},
		cost: []float64{0.3, 0.3, -0.02, 0, 0.3, none, -0.00390625, 0},
		kept: []float64{0, 0, 0, none, 0, 0, 0, none},
		move: []float64{0.015625, 0.001953125},
		segs: [][]segment{{{0.5, 0}}, {{0, 0}, {0, 0.2}, {0, 0.4}, {0.5, 0.6}}, nil, {{none, priceNowhere}}},
	}
	start := []float64{0.25, 0.5, 0.5, 0.5, 0.25, 0.5, 1.0 / 1024, 0.5}
	var f flow
	if f.warm(m, start) {
		t.Error("warm finishes: it is this test's premise that it does not")
	}
	feasible(t, m, &f)
	f.solve(m, start)
	feasible(t, m, &f)
	proof(t, m, &f, "solve")
}
