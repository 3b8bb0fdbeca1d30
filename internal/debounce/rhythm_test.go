package debounce

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoChangeWaitsLongerThanMinInterval: at any rate of changes, the next job after a change begins within the
// gap, and two jobs never begin within less.
func TestNoChangeWaitsLongerThanMinInterval(t *testing.T) {
	for name, between := range map[string]func(*rand.Rand) time.Duration{
		"a flood":         func(r *rand.Rand) time.Duration { return time.Duration(1 + r.IntN(int(300*time.Microsecond))) },
		"a stream":        func(r *rand.Rand) time.Duration { return time.Duration(1 + r.IntN(int(30*time.Millisecond))) },
		"now and then":    func(r *rand.Rand) time.Duration { return time.Duration(1 + r.IntN(int(300*time.Millisecond))) },
		"just at the gap": func(*rand.Rand) time.Duration { return MinViewInterval },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				news, ended := make(chan struct{}, 1), make(chan struct{})
				var newest, seen atomic.Int64 // the last change, and the last one seen by a job
				var last time.Time
				jobs := 0
				go func() {
					defer close(ended)
					RunOnChange(ctx, news, MinViewInterval, 100*time.Millisecond, func(now time.Time) {
						if jobs++; jobs > 1 && now.Sub(last) < MinViewInterval {
							t.Errorf("a job %v after the one before", now.Sub(last))
						}
						last = now
						seen.Store(newest.Load())
					})
				}()
				synctest.Wait()
				rng := rand.New(rand.NewPCG(1, 2))
				begun := time.Now()
				for n := int64(1); time.Since(begun) < 5*time.Second; n++ {
					newest.Store(n)
					select {
					case news <- struct{}{}:
					default:
					}
					time.AfterFunc(MinViewInterval, func() {
						synctest.Wait()
						if seen.Load() < n {
							t.Errorf("number %d was left waiting for longer than the gap", n)
						}
					})
					time.Sleep(between(rng))
				}
				time.Sleep(time.Second)
				stop()
				<-ended
				if most := int(6*time.Second/MinViewInterval) + 2; jobs > most || jobs < 50 {
					t.Errorf("%d jobs in six seconds", jobs)
				}
			})
		})
	}
}

// TestFirstChangeAfterSilenceRunsAtOnce: after a quiet period a job begins at once, and a quiet period ends
// with the tick.
func TestFirstChangeAfterSilenceRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		news, ended := make(chan struct{}, 1), make(chan struct{})
		var began []time.Duration
		start := time.Now()
		go func() {
			defer close(ended)
			RunOnChange(ctx, news, MinViewInterval, 100*time.Millisecond, func(now time.Time) { began = append(began, now.Sub(start)) })
		}()
		time.Sleep(130 * time.Millisecond)
		news <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		stop()
		<-ended
		want := []time.Duration{0, 100 * time.Millisecond, 130 * time.Millisecond, 200 * time.Millisecond}
		if len(began) != len(want) {
			t.Fatalf("jobs at %v, want %v", began, want)
		}
		for i := range want {
			if began[i] != want[i] {
				t.Fatalf("jobs at %v, want %v", began, want)
			}
		}
	})
}
