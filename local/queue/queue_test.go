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

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type testItem = Item[int]

func placeAny(*testItem) TryResult { return Placed }

func newTestRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func durationOfMillis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// placeAllInOrder places every item and settles it at its cost.
func placeAllInOrder(q *Queue[int]) (got []int) {
	for it := q.PlaceNext(testStart, placeAny); it != nil; it = q.PlaceNext(testStart, placeAny) {
		q.SettleItem(it, it.Cost)
		got = append(got, it.Value)
	}
	return got
}

func TestTenantsAlternateByCost(t *testing.T) {
	q := New[int](Config{})
	for i := range 4 {
		q.Push(&testItem{Tenant: "big", Class: spec.Standard, Cost: 2, Value: i}, testStart, newTestRNG(), nil)
	}
	for i := range 4 {
		q.Push(&testItem{Tenant: "small", Class: spec.Standard, Cost: 1, Value: 100 + i}, testStart, newTestRNG(), nil)
	}
	if got := fmt.Sprint(placeAllInOrder(q)); got != "[0 100 101 1 102 103 2 3]" {
		t.Fatalf("order is %v", got)
	}
}

func TestEarliestDueFirstInsideATenant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](Config{})
		due := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(t, "due")
		for i, d := range due {
			q.Push(&testItem{Tenant: "a", DueAt: testStart.Add(time.Duration(d) * time.Second), Value: i}, testStart, newTestRNG(), nil)
		}
		last := -1
		for _, v := range placeAllInOrder(q) {
			if last >= 0 && (due[v] < due[last] || due[v] == due[last] && v < last) {
				t.Fatalf("%d (due %d) came after %d (due %d)", v, due[v], last, due[last])
			}
			last = v
		}
	})
}

func TestIdlenessEarnsNoCredit(t *testing.T) {
	q := New[int](Config{})
	push := func(tenant string, v int) {
		q.Push(&testItem{Tenant: tenant, Cost: 1, Value: v}, testStart, newTestRNG(), nil)
	}
	for i := range 100 {
		push("busy", i)
	}
	for range 50 {
		q.SettleItem(q.PlaceNext(testStart, placeAny), 1)
	}
	for i := range 10 {
		push("back", 1000+i)
	}
	n := 0
	for range 10 {
		if it := q.PlaceNext(testStart, placeAny); it.Value >= 1000 {
			n++
		}
	}
	if n < 4 || n > 6 {
		t.Fatalf("the tenant that returned got %d of 10, half is fair", n)
	}
}

func TestNewTenantStartsAtLastCounterWhenQueueIsEmpty(t *testing.T) {
	q := New[int](Config{})
	for range 20 {
		it := &testItem{Tenant: "busy", Cost: 1}
		q.RecordDirectEntry(it, testStart)
		q.SettleItem(it, 1)
	}
	q.Push(&testItem{Tenant: "new", Cost: 1, Value: 1}, testStart, newTestRNG(), nil)
	q.Push(&testItem{Tenant: "busy", Cost: 1, Value: 2}, testStart, newTestRNG(), nil)
	l := &q.classes[spec.Interactive]
	if got, want := l.tenants["new"].virtualCounter, l.tenants["busy"].virtualCounter; got != want {
		t.Fatalf("the counter of the new tenant is %v, that of the old one %v", got, want)
	}
}

// TestBackloggedTenantsDifferWithinBound checks the bound of VTC, |Wf - Wg| <= 2 max(largest prompt, output of a full
// batch), with exact estimates and with estimates of 0.
func TestBackloggedTenantsDifferWithinBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 4
		exact := rapid.Bool().Draw(t, "exact")
		// Uniform lengths: rapid's own draws would nearly all be small. One tenant's may be a tenth of the other's.
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		scale := [2]float64{5, rapid.Float64Range(0.5, 5).Draw(t, "scale")}
		q := New[int](Config{MaxItems: 1 << 20, TenantShare: 1})
		type job struct {
			it  *testItem
			out float64
		}
		var running []job
		var work [2]float64
		out := map[*testItem]float64{}
		push := func(who int) {
			in := rng.Float64() * scale[who]
			it := &testItem{Tenant: string(rune('f' + who)), Value: who, Cost: in}
			out[it] = 2 * rng.Float64() * scale[who]
			if exact {
				it.Cost += out[it]
			}
			q.Push(it, testStart, newTestRNG(), nil)
		}
		for who := range 2 {
			for range 3 {
				push(who)
			}
		}
		longest, most := 5.0, 10.0*slots
		for range 400 {
			for len(running) < slots {
				it := q.PlaceNext(testStart, placeAny)
				work[it.Value] += it.Cost
				push(it.Value)
				running = append(running, job{it, out[it]})
			}
			i := rng.IntN(len(running))
			j := running[i]
			running = append(running[:i], running[i+1:]...)
			if exact {
				q.SettleItem(j.it, j.it.Cost)
			} else {
				work[j.it.Value] += j.out
				q.SettleItem(j.it, j.it.Cost+j.out)
			}
			if gap := math.Abs(work[0] - work[1]); gap > 2*max(longest, most) {
				t.Fatalf("one has had %v s more than the other", gap)
			}
		}
	})
}

// TestManyNewTenantsStarveNoOldTenant sends new tenants forever, each of which enters at the lowest counter: an old
// tenant must still be served.
func TestManyNewTenantsStarveNoOldTenant(t *testing.T) {
	q := New[int](Config{MaxTenants: 64})
	old := &testItem{Tenant: "old", Cost: 50, Value: -1}
	q.Push(old, testStart, newTestRNG(), nil)
	q.Push(&testItem{Tenant: "old", Cost: 1, Value: -2}, testStart, newTestRNG(), nil)
	q.Push(&testItem{Tenant: "new", Cost: 1, Value: 0}, testStart, newTestRNG(), nil)
	q.SettleItem(q.PlaceNext(testStart, placeAny), 50)
	for i := range 1000 {
		q.Push(&testItem{Tenant: fmt.Sprint("t", i), Cost: 1, Value: i}, testStart, newTestRNG(), nil)
		it := q.PlaceNext(testStart, placeAny)
		if it.Value == -2 {
			return
		}
		q.SettleItem(it, 1)
	}
	t.Fatal("a tenant that had had 50 s waited for 1,000 newcomers with 1 s each")
}

func TestClassesShareByWeightWithoutStarvation(t *testing.T) {
	q := New[int](Config{MaxItems: 10000, Aging: time.Hour, ClassShare: [3]float64{1, 1, 1}, TenantShare: 1})
	for i := range 1000 {
		for c := spec.Interactive; c < spec.NumClasses; c++ {
			q.Push(&testItem{Tenant: "t", Class: c, Cost: 100, Value: i}, testStart, newTestRNG(), nil)
		}
	}
	var n [spec.NumClasses]int
	for range 210 {
		n[q.PlaceNext(testStart, placeAny).Class]++
	}
	if n != [spec.NumClasses]int{160, 40, 10} {
		t.Fatalf("of 210 the classes got %v, want 160, 40, 10", n)
	}
}

// TestNoClassStarves keeps interactive backlogged: batch is served in a bounded time with any weights.
func TestNoClassStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := [3]float64{rapid.Float64Range(1, 1000).Draw(t, "i"), 1, rapid.Float64Range(0.01, 1).Draw(t, "b")}
		q := New[int](Config{Aging: time.Second, Weights: weights})
		now := testStart
		q.Push(&testItem{Tenant: "b", Class: spec.Batch, Cost: rapid.Float64Range(0.1, 10).Draw(t, "cost"), Value: -1}, now, newTestRNG(), nil)
		for range 100_000 {
			q.Push(&testItem{Tenant: "i", Class: spec.Interactive, Cost: 1}, now, newTestRNG(), nil)
			now = now.Add(time.Second)
			if q.PlaceNext(now, placeAny).Value == -1 {
				return
			}
		}
		t.Fatal("batch was never served")
	})
}

func TestIdleClassGetsNoCredit(t *testing.T) {
	q := New[int](Config{Aging: time.Hour})
	for range 100 {
		q.Push(&testItem{Tenant: "i", Class: spec.Interactive, Cost: 1}, testStart, newTestRNG(), nil)
		q.Push(&testItem{Tenant: "i", Class: spec.Interactive, Cost: 1}, testStart, newTestRNG(), nil)
		q.PlaceNext(testStart, placeAny)
	}
	for range 50 {
		q.Push(&testItem{Tenant: "b", Class: spec.Batch, Cost: 1}, testStart, newTestRNG(), nil)
	}
	batch := 0
	for range 34 {
		if q.PlaceNext(testStart, placeAny).Class == spec.Batch {
			batch++
		}
	}
	if batch > 3 {
		t.Fatalf("batch took %d of the first 34 after it woke up, its share is 2", batch)
	}
}

func TestOvertakingIsBounded(t *testing.T) {
	q := New[int](Config{MaxSkips: 4})
	q.Push(&testItem{Tenant: "large", Class: spec.Standard, Value: -1}, testStart, newTestRNG(), nil)
	for i := range 20 {
		q.Push(&testItem{Tenant: "small", Class: spec.Standard, Value: i}, testStart, newTestRNG(), nil)
	}
	small := func(it *testItem) TryResult {
		if it.Value < 0 {
			return NoRoom
		}
		return Placed
	}
	n := 0
	for q.PlaceNext(testStart, small) != nil {
		n++
	}
	if n != 4 {
		t.Fatalf("%d overtook the large request, want 4", n)
	}
	if it := q.PlaceNext(testStart, placeAny); it == nil || it.Value != -1 {
		t.Fatalf("with room again %+v went first, want the large request", it)
	}
}

func TestHeldLongRequestsDoNotBlockOthers(t *testing.T) {
	q := New[int](Config{MaxSkips: 4})
	for i := range 2 {
		q.Push(&testItem{Tenant: "a", Value: -1 - i}, testStart, newTestRNG(), nil)
	}
	for i := range 20 {
		q.Push(&testItem{Tenant: string(rune('a' + i%2)), Value: i}, testStart, newTestRNG(), nil)
	}
	held := func(it *testItem) TryResult {
		if it.Value < 0 {
			return HeldForLongShare
		}
		return Placed
	}
	n := 0
	for q.PlaceNext(testStart, held) != nil {
		n++
	}
	if n != 20 || q.Len() != 2 {
		t.Fatalf("%d short requests passed and %d wait, want 20 and the 2 long ones", n, q.Len())
	}
}

func TestDrainRateCountsOnlyBusyTime(t *testing.T) {
	q := New[int](Config{})
	now := testStart
	for range 100 {
		q.Push(&testItem{Tenant: "a", Class: spec.Standard, Work: 1000}, now, newTestRNG(), nil)
	}
	for range 50 { // 10 s at 5,000 tokens/s
		q.PlaceNext(now, placeAny)
		now = now.Add(durationOfMillis(200))
	}
	if got, ok := q.PredictWait(spec.Standard, now); !ok || got < 8*time.Second || got > 12*time.Second {
		t.Fatalf("50,000 tokens at 5,000/s are predicted to take %v", got)
	}
	if r := q.RetryAfter("a", spec.Standard, now); r < 4*time.Second || r > 6*time.Second {
		t.Fatalf("retry after %v", r)
	}
	if r := q.RetryAfter("b", spec.Standard, now); r != time.Second {
		t.Fatalf("a tenant with nothing waiting gets %v", r)
	}
	for q.PlaceNext(now, placeAny) != nil {
	}
	rate := q.drainMeter.ratePerSecond(now)
	if later := q.drainMeter.ratePerSecond(now.Add(time.Hour)); later != rate {
		t.Fatalf("after an idle hour the rate fell from %v to %v", rate, later)
	}
	if r := New[int](Config{}).RetryAfter("a", spec.Batch, now); r < time.Second || r > 120*time.Second {
		t.Fatalf("with an unknown drain rate: %v", r)
	}
}

func TestUnmeetableDeadlineIsRefusedAtOnce(t *testing.T) {
	q := New[int](Config{})
	now := testStart
	for range 100 {
		q.Push(&testItem{Tenant: "a", Class: spec.Standard, Work: 1000}, now, newTestRNG(), nil)
	}
	for range 20 {
		q.PlaceNext(now, placeAny)
		now = now.Add(durationOfMillis(200))
	}
	for tenant, want := range map[string]Refusal{"a": DeadlineUnmeetable, "b": Accepted} {
		it := &testItem{Tenant: tenant, Class: spec.Standard, Work: 1000, Deadline: now.Add(5 * time.Second)}
		if r := q.Push(it, now, newTestRNG(), nil); r != want {
			t.Errorf("tenant %s with 5 s left: %s, want %s", tenant, r, want)
		}
	}
	if r := q.Push(&testItem{Tenant: "b", Deadline: now}, now, newTestRNG(), nil); r != DeadlineUnmeetable {
		t.Errorf("a deadline that has passed: %s", r)
	}
}

func TestExpireItemsDropsOnlyPastDeadlines(t *testing.T) {
	q := New[int](Config{})
	for i := range 4 {
		q.Push(&testItem{Tenant: "a", Class: spec.Class(i % 3), Value: i, Deadline: testStart.Add(time.Duration(i+1) * time.Second)}, testStart, newTestRNG(), nil)
	}
	q.Push(&testItem{Tenant: "a", Value: 9}, testStart, newTestRNG(), nil)
	n := 0
	q.ExpireItems(testStart.Add(3*time.Second), func(it *testItem) {
		if n++; it.Value > 2 {
			t.Errorf("%d was dropped before its deadline", it.Value)
		}
	})
	if n != 3 || q.Len() != 2 {
		t.Fatalf("%d dropped and %d left, want 3 and 2", n, q.Len())
	}
}

// TestTenantSharesFollowWeights: while all tenants wait, each gets GPU time by its weight, with any costs, any wrong
// estimates, and other tenants that come and go.
func TestTenantSharesFollowWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "tenants")
		weights := make([]float64, n)
		total := 0.0
		for i := range weights {
			weights[i] = rapid.Float64Range(0.25, 4).Draw(t, "weight")
			total += weights[i]
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		visitors := rapid.Bool().Draw(t, "visitors")
		q := New[int](Config{MaxItems: 1 << 20, TenantShare: 1})
		push := func(who int) {
			q.Push(&testItem{Tenant: string(rune('a' + who)), Weight: weights[who], Class: spec.Standard, Value: who, Cost: 0.1 + rng.Float64()}, testStart, newTestRNG(), nil)
		}
		for who := range n {
			push(who)
			push(who)
		}
		work, all := make([]float64, n), 0.0
		for i := range 4000 {
			if visitors && i%50 == 0 {
				q.Push(&testItem{Tenant: fmt.Sprint("visitor", i), Class: spec.Standard, Value: -1, Cost: 0.1}, testStart, newTestRNG(), nil)
			}
			it := q.PlaceNext(testStart, placeAny)
			cost := it.Cost * (0.5 + rng.Float64())
			q.SettleItem(it, cost)
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
