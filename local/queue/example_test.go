package queue_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/queue"
)

// Two tenants wait. They take turns by the GPU time that they have used, so the one with cheap requests gets more of them.
func ExampleQueue_PlaceNext() {
	now, rng := time.Unix(0, 0), rand.New(rand.NewPCG(1, 2))
	q := queue.New[string](queue.Config{})
	for i := range 3 {
		q.Push(&queue.Item[string]{Tenant: "long", Class: spec.Standard, Cost: 2, Value: fmt.Sprint("long ", i)}, now, rng, nil)
		q.Push(&queue.Item[string]{Tenant: "short", Class: spec.Standard, Cost: 1, Value: fmt.Sprint("short ", i)}, now, rng, nil)
	}
	// Every worker has room: the request that is next is placed.
	everyWorkerHasRoom := func(*queue.Item[string]) queue.TryResult { return queue.Placed }
	for it := q.PlaceNext(now, everyWorkerHasRoom); it != nil; it = q.PlaceNext(now, everyWorkerHasRoom) {
		q.SettleItem(it, it.Cost)
		fmt.Println(it.Value)
	}
	// Output:
	// long 0
	// short 0
	// short 1
	// long 1
	// short 2
	// long 2
}
