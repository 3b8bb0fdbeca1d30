package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// What is foreseen is what Push then does, and to foresee changes nothing.
func TestForeseePropertyIsWhatPushDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		q := New[int](Config{MaxItems: 12, MaxBytes: 2000, MaxTenants: 3, TenantShare: 0.6})
		now := t0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				if it := q.Next(now, take); it != nil {
					q.Settle(it, it.Cost)
				}
			}
			who := rng.IntN(5)
			it := &item{
				Tenant: fmt.Sprint(who), Class: spec.Class(rng.IntN(3)), Weight: 0.5 + float64(who),
				Work: int64(rng.IntN(2000)), Bytes: int64(rng.IntN(400)), Cost: rng.Float64(),
			}
			if rng.IntN(2) == 0 {
				it.Deadline = now.Add(time.Duration(rng.IntN(5000)-100) * time.Millisecond)
			}
			before := fmt.Sprintf("%+v", q.Snapshot(now, 10))
			f := q.Foresee(it, now)
			if after := fmt.Sprintf("%+v", q.Snapshot(now, 10)); after != before {
				t.Fatalf("to foresee has changed %s to %s", before, after)
			}
			r := q.Push(it, now, rng, nil)
			switch {
			case r == f.Refusal:
			case r == Shed && f.Shed > 0:
			case f.Refusal == Shed && r == TenantFull:
				t.Fatalf("foreseen to be shed, and refused as %s", r)
			default:
				t.Fatalf("foreseen %+v, and Push said %s", f, r)
			}
		}
	})
}
