package sched

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/pick"
)

func TestHashKeyKeepsRequestsTogether(t *testing.T) {
	request := func(tenant, text, prompt string) *Request {
		v := &Request{Model: "m", Tenant: tenant, AffinityText: text}
		v.Envelope.Prompt = []byte(prompt)
		return v
	}
	for _, c := range []struct {
		by   string
		a, b *Request
		same bool
	}{
		{"session", request("acme", "s1", "hello"), request("acme", "s1", "other"), true},
		{"session", request("acme", "s1", "hello"), request("acme", "s2", "hello"), false},
		{"session", request("acme", "s1", "hello"), request("zeta", "s1", "hello"), false},
		{"tenant", request("acme", "", "hello"), request("acme", "", "other"), true},
		{"tenant", request("acme", "", "hello"), request("zeta", "", "hello"), false},
		{"prefix", request("acme", "", "hello"), request("acme", "", "hello"), true},
		{"prefix", request("acme", "", "hello"), request("acme", "", "other"), false},
	} {
		o := NewSchedulingPolicy(&spec.Spec{Routing: spec.Routing{HashKey: c.by}}, "", nil, 0)
		if got := o.computeHashKey(c.a) == o.computeHashKey(c.b); got != c.same {
			t.Errorf("by %s: same key %v, want %v", c.by, got, c.same)
		}
		if again := NewSchedulingPolicy(o.Spec, "", nil, 0); again.computeHashKey(c.a) != o.computeHashKey(c.a) {
			t.Errorf("by %s: two instances compute different keys", c.by)
		}
	}
	if NewSchedulingPolicy(nil, "", nil, 0).computeHashKey(request("acme", "", "")) != 0 {
		t.Error("a request without any key source has a key")
	}
}

func TestAdapterStateFollowsTheReading(t *testing.T) {
	w := &Worker{models: []report.WorkerModel{{ID: "base"}, {ID: "sql", Parent: "base"}, {ID: "law", Parent: "base"}}}
	w.reading.Adapters = []string{"chat", "sql"}
	for _, c := range []struct {
		model string
		most  int64
		want  pick.AdapterState
	}{
		{"base", 4, pick.AdapterNone},
		{"sql", 4, pick.AdapterLoaded},
		{"law", 4, pick.AdapterSlotFree},
		{"law", 2, pick.AdapterSlotsFull},
		{"law", 0, pick.AdapterNone},
		{"absent", 4, pick.AdapterNone},
	} {
		w.reading.MaxAdapters = c.most
		if got := w.adapterState(c.model); got != c.want {
			t.Errorf("%s of %d places is %d, want %d", c.model, c.most, got, c.want)
		}
	}
}
