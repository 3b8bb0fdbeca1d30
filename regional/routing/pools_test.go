package routing_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// A request of a pool goes by what the pool's workers can do, wherever a zone says that, and not by what others can.
func TestPoolRequestsUsePoolCapacity(t *testing.T) {
	pooled := func(ahead int64, pools ...capacity.ModelCapacity) capacity.ModelCapacity {
		m := testModel("m", ahead)
		m.Pools = pools
		return m
	}
	none := withChange(testModel("gold", 0), func(m *capacity.ModelCapacity) { m.Ready = 0 })
	for _, tc := range []struct {
		name     string
		a, b     capacity.ModelCapacity
		pool     string
		overflow bool
		want     string
	}{
		{"anybody's request", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 0)), "", false, "a:1"},
		{"the pool with less before it", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 0)), "gold", false, "b:1"},
		{"the zone that has the pool", pooled(0, none), pooled(20_000, testModel("gold", 40_000)), "gold", false, "b:1"},
		{"nowhere", pooled(0, none), pooled(0, none), "gold", false, ""},
		{"over to the others where the pool is full", pooled(0, testModel("gold", 50_000)), pooled(20_000, testModel("gold", 20_000)), "gold", true, "a:1"},
		{"over to the others where the pool is not", pooled(0, none), pooled(20_000, testModel("gold", 10_000)), "gold", true, "a:1"},
		{"a zone of a release that does not say", pooled(0), pooled(0, testModel("gold", 50_000)), "gold", false, "a:1"},
		{"a pool of workers that are there alone", withChange(pooled(0, testModel("gold", 0)), func(m *capacity.ModelCapacity) { m.Ready = 0 }), withChange(pooled(0, none), func(m *capacity.ModelCapacity) { m.Ready = 0 }), "gold", true, "a:1"},
	} {
		q := testQuery()
		q.Pool, q.Overflow = tc.pool, tc.overflow
		v := routing.RoutingView{Locals: []routing.LocalInstance{testLocal("a", tc.a), testLocal("b", tc.b)}}
		if got, _ := routing.ChooseRoute(q, &v, time.Time{}, newRNG(), nil); got.Endpoint != tc.want {
			t.Errorf("%s: it goes to %q, want %q", tc.name, got.Endpoint, tc.want)
		}
	}
	far := routing.RoutingView{
		Locals: []routing.LocalInstance{testLocal("a", pooled(0, testModel("gold", 50_000)))},
		Peers:  []routing.PeerRegion{testPeer("ams", 10*time.Millisecond, pooled(50_000, testModel("gold", 0)))},
	}
	q := testQuery()
	q.Pool = "gold"
	if got, _ := routing.ChooseRoute(q, &far, time.Time{}, newRNG(), nil); !got.IsSpilled() {
		t.Errorf("a peer whose pool is free is left for a queue at home: %+v", got)
	}
}
