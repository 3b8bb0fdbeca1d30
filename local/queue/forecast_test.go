package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

// TestForecastPushMatchesPush: Push does what ForecastPush predicts, and ForecastPush changes nothing.
func TestForecastPushMatchesPush(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		q := New[int](Config{MaxItems: 12, MaxBytes: 2000, MaxTenants: 3, TenantShare: 0.6})
		now := testStart
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
			if rng.IntN(3) == 0 {
				if it := q.PlaceNext(now, placeAny); it != nil {
					q.SettleItem(it, it.Cost)
				}
			}
			who := rng.IntN(5)
			it := &testItem{
				Tenant: fmt.Sprint(who), Class: spec.Class(rng.IntN(3)), Weight: 0.5 + float64(who),
				Work: int64(rng.IntN(2000)), Bytes: int64(rng.IntN(400)), Cost: rng.Float64(),
			}
			if rng.IntN(2) == 0 {
				it.Deadline = now.Add(time.Duration(rng.IntN(5000)-100) * time.Millisecond)
			}
			before := fmt.Sprintf("%+v", q.Snapshot(now, 10))
			f := q.ForecastPush(it, now)
			if after := fmt.Sprintf("%+v", q.Snapshot(now, 10)); after != before {
				t.Fatalf("ForecastPush changed %s to %s", before, after)
			}
			r := q.Push(it, now, rng, nil)
			switch {
			case r == f.Refusal:
			case r == ShedForLoad && f.ShedProbability > 0:
			case f.Refusal == ShedForLoad && r == TenantFull:
				t.Fatalf("the forecast is shed, Push returned %s", r)
			default:
				t.Fatalf("the forecast is %+v, Push returned %s", f, r)
			}
		}
	})
}
