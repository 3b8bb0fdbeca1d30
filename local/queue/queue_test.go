package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type item = Item[int]

func take(*item) Answer { return Placed }

func dice() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// order takes everything and settles it at its cost.
func order(q *Queue[int]) (got []int) {
	for it := q.Next(t0, take); it != nil; it = q.Next(t0, take) {
		q.Settle(it, it.Cost)
		got = append(got, it.Value)
	}
	return got
}

func TestTenantsTakeTurnsByCost(t *testing.T) {
	q := New[int](Config{})
	for i := range 4 {
		q.Push(&item{Tenant: "big", Class: spec.Standard, Cost: 2, Value: i}, t0, dice(), nil)
	}
	for i := range 4 {
		q.Push(&item{Tenant: "small", Class: spec.Standard, Cost: 1, Value: 100 + i}, t0, dice(), nil)
	}
	if got := fmt.Sprint(order(q)); got != "[0 100 101 1 102 103 2 3]" {
		t.Fatalf("order is %v", got)
	}
}

func TestEarliestDueFirstInsideATenant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](Config{})
		due := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(t, "due")
		for i, d := range due {
			q.Push(&item{Tenant: "a", Due: t0.Add(time.Duration(d) * time.Second), Value: i}, t0, dice(), nil)
		}
		last := -1
		for _, v := range order(q) {
			if last >= 0 && (due[v] < due[last] || due[v] == due[last] && v < last) {
				t.Fatalf("%d (due %d) came after %d (due %d)", v, due[v], last, due[last])
			}
			last = v
		}
	})
}

func TestIdlenessEarnsNoCredit(t *testing.T) {
	q := New[int](Config{})
	push := func(tenant string, v int) { q.Push(&item{Tenant: tenant, Cost: 1, Value: v}, t0, dice(), nil) }
	for i := range 100 {
		push("busy", i)
	}
	for range 50 {
		q.Settle(q.Next(t0, take), 1)
	}
	for i := range 10 {
		push("back", 1000+i)
	}
	n := 0
	for range 10 {
		if it := q.Next(t0, take); it.Value >= 1000 {
			n++
		}
	}
	if n < 4 || n > 6 {
		t.Fatalf("who came back got %d of 10, half is fair", n)
	}
}

func TestWhoComesWhenNobodyWaitsStartsWhereTheLastOneLeft(t *testing.T) {
	q := New[int](Config{})
	for range 20 {
		it := &item{Tenant: "busy", Cost: 1}
		q.Pass(it, t0)
		q.Settle(it, 1)
	}
	q.Push(&item{Tenant: "new", Cost: 1, Value: 1}, t0, dice(), nil)
	q.Push(&item{Tenant: "busy", Cost: 1, Value: 2}, t0, dice(), nil)
	l := &q.lines[spec.Interactive]
	if got, want := l.lanes["new"].counter, l.lanes["busy"].counter; got != want {
		t.Fatalf("the newcomer stands at %v, who was there at %v", got, want)
	}
}

// TestBackloggedTenantsDifferByNoMoreThanTheBound holds the bound of VTC: |Wf - Wg| <= 2 max(largest prompt, output of a full
// batch), for estimates that are right and for none at all.
func TestBackloggedTenantsDifferByNoMoreThanTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 4
		exact := rapid.Bool().Draw(t, "exact")
		// Plain uniform lengths: drawn ones would nearly all be small. One tenant's may be a tenth of the other's.
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		scale := [2]float64{5, rapid.Float64Range(0.5, 5).Draw(t, "scale")}
		q := New[int](Config{MaxItems: 1 << 20, TenantShare: 1})
		type job struct {
			it  *item
			out float64
		}
		var running []job
		var work [2]float64
		out := map[*item]float64{}
		push := func(who int) {
			in := rng.Float64() * scale[who]
			it := &item{Tenant: string(rune('f' + who)), Value: who, Cost: in}
			out[it] = 2 * rng.Float64() * scale[who]
			if exact {
				it.Cost += out[it]
			}
			q.Push(it, t0, dice(), nil)
		}
		for who := range 2 {
			for range 3 {
				push(who)
			}
		}
		longest, most := 5.0, 10.0*slots
		for range 400 {
			for len(running) < slots {
				it := q.Next(t0, take)
				work[it.Value] += it.Cost
				push(it.Value)
				running = append(running, job{it, out[it]})
			}
			i := rng.IntN(len(running))
			j := running[i]
			running = append(running[:i], running[i+1:]...)
			if exact {
				q.Settle(j.it, j.it.Cost)
			} else {
				work[j.it.Value] += j.out
				q.Settle(j.it, j.it.Cost+j.out)
			}
			if gap := math.Abs(work[0] - work[1]); gap > 2*max(longest, most) {
				t.Fatalf("one has had %v s more than the other", gap)
			}
		}
	})
}

// TestAnEndlessParadeOfNewTenantsStarvesNobody sends new tenants for ever: each would enter at the least counter, and one old
// tenant must still be served.
func TestAnEndlessParadeOfNewTenantsStarvesNobody(t *testing.T) {
	q := New[int](Config{MaxTenants: 64})
	old := &item{Tenant: "old", Cost: 50, Value: -1}
	q.Push(old, t0, dice(), nil)
	q.Push(&item{Tenant: "old", Cost: 1, Value: -2}, t0, dice(), nil)
	q.Push(&item{Tenant: "new", Cost: 1, Value: 0}, t0, dice(), nil)
	q.Settle(q.Next(t0, take), 50)
	for i := range 1000 {
		q.Push(&item{Tenant: fmt.Sprint("t", i), Cost: 1, Value: i}, t0, dice(), nil)
		it := q.Next(t0, take)
		if it.Value == -2 {
			return
		}
		q.Settle(it, 1)
	}
	t.Fatal("a tenant that had had 50 s waited for 1,000 newcomers with 1 s each")
}

func TestClassesShareByWeightAndNobodyStarves(t *testing.T) {
	q := New[int](Config{MaxItems: 10000, Aging: time.Hour, ClassShare: [3]float64{1, 1, 1}, TenantShare: 1})
	for i := range 1000 {
		for c := spec.Interactive; c < spec.NumClasses; c++ {
			q.Push(&item{Tenant: "t", Class: c, Cost: 100, Value: i}, t0, dice(), nil)
		}
	}
	var n [spec.NumClasses]int
	for range 210 {
		n[q.Next(t0, take).Class]++
	}
	if n != [spec.NumClasses]int{160, 40, 10} {
		t.Fatalf("of 210 the classes got %v, want 160, 40, 10", n)
	}
}

// TestNoClassStarves keeps interactive backlogged for ever: whatever the weights, batch is served in a bounded time.
func TestNoClassStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := [3]float64{rapid.Float64Range(1, 1000).Draw(t, "i"), 1, rapid.Float64Range(0.01, 1).Draw(t, "b")}
		q := New[int](Config{Aging: time.Second, Weights: weights})
		now := t0
		q.Push(&item{Tenant: "b", Class: spec.Batch, Cost: rapid.Float64Range(0.1, 10).Draw(t, "cost"), Value: -1}, now, dice(), nil)
		for range 100_000 {
			q.Push(&item{Tenant: "i", Class: spec.Interactive, Cost: 1}, now, dice(), nil)
			now = now.Add(time.Second)
			if q.Next(now, take).Value == -1 {
				return
			}
		}
		t.Fatal("batch was never served")
	})
}

func TestIdleClassGetsNoCredit(t *testing.T) {
	q := New[int](Config{Aging: time.Hour})
	for range 100 {
		q.Push(&item{Tenant: "i", Class: spec.Interactive, Cost: 1}, t0, dice(), nil)
		q.Push(&item{Tenant: "i", Class: spec.Interactive, Cost: 1}, t0, dice(), nil)
		q.Next(t0, take)
	}
	for range 50 {
		q.Push(&item{Tenant: "b", Class: spec.Batch, Cost: 1}, t0, dice(), nil)
	}
	batch := 0
	for range 34 {
		if q.Next(t0, take).Class == spec.Batch {
			batch++
		}
	}
	if batch > 3 {
		t.Fatalf("batch took %d of the first 34 after it woke up, its share is 2", batch)
	}
}

func TestRequestWithoutRoomIsOvertakenOnlySoOften(t *testing.T) {
	q := New[int](Config{MaxSkips: 4})
	q.Push(&item{Tenant: "large", Class: spec.Standard, Value: -1}, t0, dice(), nil)
	for i := range 20 {
		q.Push(&item{Tenant: "small", Class: spec.Standard, Value: i}, t0, dice(), nil)
	}
	small := func(it *item) Answer {
		if it.Value < 0 {
			return NoRoom
		}
		return Placed
	}
	n := 0
	for q.Next(t0, small) != nil {
		n++
	}
	if n != 4 {
		t.Fatalf("%d overtook the large request, want 4", n)
	}
	if it := q.Next(t0, take); it == nil || it.Value != -1 {
		t.Fatalf("with room again %+v went first, want the large request", it)
	}
}

func TestLongRequestsThatHaveTheirShareBlockNobody(t *testing.T) {
	q := New[int](Config{MaxSkips: 4})
	for i := range 2 {
		q.Push(&item{Tenant: "a", Value: -1 - i}, t0, dice(), nil)
	}
	for i := range 20 {
		q.Push(&item{Tenant: string(rune('a' + i%2)), Value: i}, t0, dice(), nil)
	}
	held := func(it *item) Answer {
		if it.Value < 0 {
			return Held
		}
		return Placed
	}
	n := 0
	for q.Next(t0, held) != nil {
		n++
	}
	if n != 20 || q.Len() != 2 {
		t.Fatalf("%d short requests passed and %d wait, want 20 and the 2 long ones", n, q.Len())
	}
}

func TestDrainRateCountsOnlyTheTimeInWhichSomethingWaits(t *testing.T) {
	q := New[int](Config{})
	now := t0
	for range 100 {
		q.Push(&item{Tenant: "a", Class: spec.Standard, Work: 1000}, now, dice(), nil)
	}
	for range 50 { // 10 s at 5,000 tokens/s
		q.Next(now, take)
		now = now.Add(ms(200))
	}
	if got, ok := q.Wait(spec.Standard, now); !ok || got < 8*time.Second || got > 12*time.Second {
		t.Fatalf("50,000 tokens at 5,000/s are predicted to take %v", got)
	}
	if r := q.RetryAfter("a", spec.Standard, now); r < 4*time.Second || r > 6*time.Second {
		t.Fatalf("retry after %v", r)
	}
	if r := q.RetryAfter("b", spec.Standard, now); r != time.Second {
		t.Fatalf("a tenant with nothing waiting is told %v", r)
	}
	for q.Next(now, take) != nil {
	}
	rate := q.drain.perSecond(now)
	if later := q.drain.perSecond(now.Add(time.Hour)); later != rate {
		t.Fatalf("after an idle hour the rate fell from %v to %v", rate, later)
	}
	if r := New[int](Config{}).RetryAfter("a", spec.Batch, now); r < time.Second || r > 120*time.Second {
		t.Fatalf("an unknown drain rate says %v", r)
	}
}

func TestAnsweringLateIsRefusedAtOnce(t *testing.T) {
	q := New[int](Config{})
	now := t0
	for range 100 {
		q.Push(&item{Tenant: "a", Class: spec.Standard, Work: 1000}, now, dice(), nil)
	}
	for range 20 {
		q.Next(now, take)
		now = now.Add(ms(200))
	}
	for tenant, want := range map[string]Refusal{"a": Late, "b": Accepted} {
		it := &item{Tenant: tenant, Class: spec.Standard, Work: 1000, Deadline: now.Add(5 * time.Second)}
		if r := q.Push(it, now, dice(), nil); r != want {
			t.Errorf("tenant %s with 5 s left: %s, want %s", tenant, r, want)
		}
	}
	if r := q.Push(&item{Tenant: "b", Deadline: now}, now, dice(), nil); r != Late {
		t.Errorf("a deadline that has passed: %s", r)
	}
}

func TestExpireDropsOnlyThePast(t *testing.T) {
	q := New[int](Config{})
	for i := range 4 {
		q.Push(&item{Tenant: "a", Class: spec.Class(i % 3), Value: i, Deadline: t0.Add(time.Duration(i+1) * time.Second)}, t0, dice(), nil)
	}
	q.Push(&item{Tenant: "a", Value: 9}, t0, dice(), nil)
	n := 0
	q.Expire(t0.Add(3*time.Second), func(it *item) {
		if n++; it.Value > 2 {
			t.Errorf("%d was dropped before its deadline", it.Value)
		}
	})
	if n != 3 || q.Len() != 2 {
		t.Fatalf("%d dropped and %d left, want 3 and 2", n, q.Len())
	}
}

// TestSharesOfTenantsFollowTheirWeights: while all of them wait, each is served GPU time by its weight, whatever its
// requests cost, whoever comes and goes beside them, and however far the estimates are out.
func TestSharesOfTenantsFollowTheirWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "tenants")
		weights := make([]float64, n)
		total := 0.0
		for i := range weights {
			weights[i] = rapid.Float64Range(0.25, 4).Draw(t, "weight")
			total += weights[i]
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		guests := rapid.Bool().Draw(t, "guests")
		q := New[int](Config{MaxItems: 1 << 20, TenantShare: 1})
		push := func(who int) {
			q.Push(&item{Tenant: string(rune('a' + who)), Weight: weights[who], Class: spec.Standard, Value: who, Cost: 0.1 + rng.Float64()}, t0, dice(), nil)
		}
		for who := range n {
			push(who)
			push(who)
		}
		work, all := make([]float64, n), 0.0
		for i := range 4000 {
			if guests && i%50 == 0 {
				q.Push(&item{Tenant: fmt.Sprint("guest", i), Class: spec.Standard, Value: -1, Cost: 0.1}, t0, dice(), nil)
			}
			it := q.Next(t0, take)
			cost := it.Cost * (0.5 + rng.Float64())
			q.Settle(it, cost)
			if it.Value < 0 {
				continue
			}
			work[it.Value] += cost
			all += cost
			push(it.Value)
		}
		for who := range n {
			if got, want := work[who]/all, weights[who]/total; math.Abs(got-want) > 0.01 {
				t.Fatalf("tenant %d of weights %v had a share of %.3f, want %.3f", who, weights, got, want)
			}
		}
	})
}
