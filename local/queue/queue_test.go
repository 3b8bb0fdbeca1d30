package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type item = Item[int]

func take(*item) bool { return true }

func TestTenantsTakeTurnsAndKeepTheirOrder(t *testing.T) {
	q := New[int](Config{})
	for i := range 6 {
		q.Push(&item{Tenant: "big", Class: spec.Standard, Work: 10, Value: i}, t0, nil)
	}
	q.Push(&item{Tenant: "small", Class: spec.Standard, Work: 10, Value: 100}, t0, nil)
	q.Push(&item{Tenant: "small", Class: spec.Standard, Work: 10, Value: 101}, t0, nil)
	var got []int
	for it := q.Next(t0, take); it != nil; it = q.Next(t0, take) {
		got = append(got, it.Value)
	}
	if fmt.Sprint(got) != "[0 100 1 101 2 3 4 5]" {
		t.Fatalf("order is %v", got)
	}
}

func TestClassesShareByWeightAndNobodyStarves(t *testing.T) {
	q := New[int](Config{MaxItems: 10000, Aging: time.Hour})
	for i := range 1000 {
		for c := spec.Interactive; c < spec.NumClasses; c++ {
			q.Push(&item{Tenant: "t", Class: c, Work: 100, Value: i}, t0, nil)
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

func TestAgeBringsALowClassForward(t *testing.T) {
	q := New[int](Config{Aging: time.Second})
	now := t0
	q.Push(&item{Tenant: "b", Class: spec.Batch, Work: 100, Value: -1}, now, nil)
	served := 0
	for ; served < 1000; served++ {
		q.Push(&item{Tenant: "i", Class: spec.Interactive, Work: 100}, now, nil)
		now = now.Add(time.Second)
		if q.Next(now, take).Value == -1 {
			break
		}
	}
	if served > 8 {
		t.Fatalf("the batch request let %d younger interactive ones pass, want at most 8", served)
	}
}

func TestIdleClassGetsNoCredit(t *testing.T) {
	q := New[int](Config{Aging: time.Hour})
	for range 100 {
		q.Push(&item{Tenant: "i", Class: spec.Interactive, Work: 1000}, t0, nil)
		q.Push(&item{Tenant: "i", Class: spec.Interactive, Work: 1000}, t0, nil)
		q.Next(t0, take)
	}
	for range 50 {
		q.Push(&item{Tenant: "b", Class: spec.Batch, Work: 1000}, t0, nil)
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

func TestFullQueueShedsLeastUrgentNewestFirst(t *testing.T) {
	q := New[int](Config{MaxItems: 3})
	q.Push(&item{Tenant: "a", Class: spec.Batch, Work: 1, Value: 1}, t0, nil)
	q.Push(&item{Tenant: "a", Class: spec.Batch, Work: 1, Value: 2}, t0, nil)
	q.Push(&item{Tenant: "a", Class: spec.Standard, Work: 1, Value: 3}, t0, nil)
	var shed []int
	drop := func(it *item) { shed = append(shed, it.Value) }
	if q.Push(&item{Tenant: "b", Class: spec.Batch, Work: 1}, t0, drop) {
		t.Fatal("a batch request pushed out its equal")
	}
	if !q.Push(&item{Tenant: "b", Class: spec.Interactive, Work: 1}, t0, drop) || fmt.Sprint(shed) != "[2]" {
		t.Fatalf("shed %v, want the newest batch request", shed)
	}
	if q.Len() != 3 {
		t.Fatalf("%d wait, the bound is 3", q.Len())
	}
}

func TestRequestWithoutRoomIsOvertakenOnlySoOften(t *testing.T) {
	q := New[int](Config{MaxSkips: 4})
	q.Push(&item{Tenant: "long", Class: spec.Standard, Work: 1, Value: -1}, t0, nil)
	for i := range 20 {
		q.Push(&item{Tenant: "short", Class: spec.Standard, Work: 1, Value: i}, t0, nil)
	}
	short := func(it *item) bool { return it.Value >= 0 }
	n := 0
	for q.Next(t0, short) != nil {
		n++
	}
	if n != 4 {
		t.Fatalf("%d overtook the long request, want 4", n)
	}
	if it := q.Next(t0, take); it == nil || it.Value != -1 {
		t.Fatalf("with room again %+v went first, want the long request", it)
	}
}

func TestExpireDropsOnlyThePast(t *testing.T) {
	q := New[int](Config{})
	for i := range 4 {
		q.Push(&item{Tenant: "a", Class: spec.Class(i % 3), Work: 1, Value: i, Deadline: t0.Add(time.Duration(i) * time.Second)}, t0, nil)
	}
	q.Push(&item{Tenant: "a", Work: 1, Value: 9}, t0, nil)
	n := 0
	q.Expire(t0.Add(2*time.Second), func(it *item) {
		if n++; it.Value > 2 {
			t.Errorf("%d was dropped before its deadline", it.Value)
		}
	})
	if n != 3 || q.Len() != 2 {
		t.Fatalf("%d dropped and %d left, want 3 and 2", n, q.Len())
	}
}

func TestRetryAfterFollowsTheDrainRate(t *testing.T) {
	q := New[int](Config{})
	now := t0
	for range 100 {
		q.Push(&item{Tenant: "a", Class: spec.Standard, Work: 1000}, now, nil)
	}
	for range 50 { // 10 s at 5,000 tokens/s
		q.Next(now, take)
		now = now.Add(200 * time.Millisecond)
	}
	got, ok := q.Wait(spec.Standard, now)
	if !ok || got < 8*time.Second || got > 12*time.Second {
		t.Fatalf("50,000 tokens at 5,000/s are predicted to take %v", got)
	}
	if r := q.RetryAfter(spec.Standard, now); r < 4*time.Second || r > 6*time.Second {
		t.Fatalf("retry after %v", r)
	}
	if r := New[int](Config{}).RetryAfter(spec.Batch, now); r < time.Second || r > 120*time.Second {
		t.Fatalf("an unknown drain rate says %v", r)
	}
}

// TestInvariants pushes, takes, removes and expires at random against a plain slice.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{MaxItems: rapid.IntRange(1, 12).Draw(t, "items"), MaxWork: rapid.Int64Range(1, 400).Draw(t, "work"), MaxSkips: 3}
		q := New[int](cfg)
		waiting := map[*item]bool{}
		gone := func(it *item) {
			if !waiting[it] || it.Waiting() {
				t.Fatalf("item %d left but was not waiting", it.Value)
			}
			delete(waiting, it)
		}
		last := map[string]int{}
		now, id := t0, 0
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				id++
				it := &item{
					Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), Class: spec.Class(rapid.IntRange(0, 4).Draw(t, "class")),
					Work: rapid.Int64Range(-1, 200).Draw(t, "w"), Value: id, Deadline: now.Add(3 * time.Second),
				}
				waiting[it] = true
				if !q.Push(it, now, gone) {
					gone(it)
				}
			case 3:
				room := rapid.Int64Range(0, 200).Draw(t, "room")
				if it := q.Next(now, func(it *item) bool { return it.Work <= room }); it != nil {
					gone(it)
					key := it.Tenant + it.Class.String()
					if it.Value < last[key] {
						t.Fatalf("%s: %d came after %d", key, it.Value, last[key])
					}
					last[key] = it.Value
				}
			case 4:
				for it := range waiting {
					q.Remove(it)
					q.Remove(it)
					gone(it)
					break
				}
			case 5:
				q.Expire(now, gone)
			}
			var work int64
			for it := range waiting {
				work += it.Work
			}
			if q.Len() != len(waiting) || q.Work() != work || q.Len() > cfg.MaxItems || q.Work() > cfg.MaxWork {
				t.Fatalf("queue has %d items and %d tokens, the slice %d and %d, bounds %d and %d", q.Len(), q.Work(), len(waiting), work, cfg.MaxItems, cfg.MaxWork)
			}
			for c := range spec.Class(spec.NumClasses) {
				if a := q.Ahead(c); a < 0 || a > q.Work() {
					t.Fatalf("%d tokens stand before %s in a queue of %d", a, c, q.Work())
				}
			}
		}
		for q.Len() > 0 {
			gone(q.Next(now, take))
		}
		for c := range q.lines {
			if l := &q.lines[c]; len(l.lanes) != 0 || l.turn != nil || l.oldest != nil || l.newest != nil || l.work != 0 {
				t.Fatalf("an empty queue keeps %+v", *l)
			}
		}
	})
}

func BenchmarkPushNext(b *testing.B) {
	q := New[int](Config{})
	for i := range 500 {
		q.Push(&item{Tenant: fmt.Sprint(i % 20), Class: spec.Class(i % 3), Work: 100}, t0, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		it := q.Next(t0, take)
		q.Push(it, t0, nil)
	}
}
