package zone_test

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/zone"
)

// A request of a pool goes by what the pool's workers can do, wherever a zone says that, and not by what others can.
func TestAPoolsRequestsGoByThePoolsWorkers(t *testing.T) {
	pooled := func(ahead int64, pools ...capacity.Model) capacity.Model {
		m := model("m", ahead)
		m.Pools = pools
		return m
	}
	none := with(model("gold", 0), func(m *capacity.Model) { m.Ready = 0 })
	for _, tc := range []struct {
		name     string
		a, b     capacity.Model
		pool     string
		overflow bool
		want     string
	}{
		{"anybody's request", pooled(0, model("gold", 50_000)), pooled(20_000, model("gold", 0)), "", false, "a:1"},
		{"the pool with less before it", pooled(0, model("gold", 50_000)), pooled(20_000, model("gold", 0)), "gold", false, "b:1"},
		{"the zone that has the pool", pooled(0, none), pooled(20_000, model("gold", 40_000)), "gold", false, "b:1"},
		{"nowhere", pooled(0, none), pooled(0, none), "gold", false, ""},
		{"over to the others where the pool is full", pooled(0, model("gold", 50_000)), pooled(20_000, model("gold", 20_000)), "gold", true, "a:1"},
		{"over to the others where the pool is not", pooled(0, none), pooled(20_000, model("gold", 10_000)), "gold", true, "a:1"},
		{"a zone of a release that does not say", pooled(0), pooled(0, model("gold", 50_000)), "gold", false, "a:1"},
		{"a pool of workers that are there alone", with(pooled(0, model("gold", 0)), func(m *capacity.Model) { m.Ready = 0 }), with(pooled(0, none), func(m *capacity.Model) { m.Ready = 0 }), "gold", true, "a:1"},
	} {
		q := query()
		q.Pool, q.Overflow = tc.pool, tc.overflow
		v := zone.View{Locals: []zone.Local{local("a", tc.a), local("b", tc.b)}}
		if got, _ := zone.Choose(q, &v, time.Time{}, rng(), nil); got.Endpoint != tc.want {
			t.Errorf("%s: it goes to %q, want %q", tc.name, got.Endpoint, tc.want)
		}
	}
	far := zone.View{
		Locals: []zone.Local{local("a", pooled(0, model("gold", 50_000)))},
		Peers:  []zone.Peer{peer("ams", 10*time.Millisecond, pooled(50_000, model("gold", 0)))},
	}
	q := query()
	q.Pool = "gold"
	if got, _ := zone.Choose(q, &far, time.Time{}, rng(), nil); !got.Spilled() {
		t.Errorf("a peer whose pool is free is left for a queue at home: %+v", got)
	}
}
