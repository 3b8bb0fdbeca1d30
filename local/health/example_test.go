package health_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/local/health"
)

// A new worker takes requests after a probe. Exhausted memory opens its breaker; it returns on trial, and then with a
// share that grows.
func ExampleBreaker() {
	now := time.Unix(0, 0)
	b := health.New(health.Config{}, rand.New(rand.NewPCG(1, 2)))
	fmt.Println("new:", b.State())
	b.RecordProbeSuccess(now)
	fmt.Println("probe succeeds:", b.State())

	b.RecordFailure(health.OutOfMemory, now)
	fmt.Println("out of memory:", b.State(), b.Reason())
	now = b.OpenUntil()
	b.RecordProbeSuccess(now)
	fmt.Println("probe after the quarantine:", b.State())
	b.RecordSuccess(now)
	fmt.Printf("trial answered: %s, share %.1f\n", b.State(), b.Share(now))
	now = now.Add(5 * time.Second)
	fmt.Printf("5 s later: share %.1f\n", b.Share(now))
	// Output:
	// new: open
	// probe succeeds: closed
	// out of memory: open out_of_memory
	// probe after the quarantine: half_open
	// trial answered: closed, share 0.1
	// 5 s later: share 0.5
}
