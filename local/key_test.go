package local

import (
	"net/http"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/pick"
)

func TestHashKeySaysWhatStaysTogether(t *testing.T) {
	request := func(tenant, session, user, prompt string) *visit {
		v := &visit{r: &http.Request{Header: http.Header{"X-Session-Id": {session}, "X-Own": {session}}}, model: "m"}
		v.hop.Tenant, v.env.User, v.env.Prompt = tenant, user, []byte(prompt)
		return v
	}
	a := request("acme", "s1", "u1", "hello")
	for _, c := range []struct {
		by   string
		b    *visit
		same bool
	}{
		{"session", request("acme", "s1", "u2", "other"), true},
		{"session", request("acme", "s2", "u1", "hello"), false},
		{"session", request("zeta", "s1", "u1", "hello"), false},
		{"tenant", request("acme", "s2", "u2", "other"), true},
		{"tenant", request("zeta", "s1", "u1", "hello"), false},
		{"prefix", request("acme", "s2", "u2", "hello"), true},
		{"prefix", request("acme", "s1", "u1", "other"), false},
		{"header:X-Own", request("acme", "s1", "u2", "other"), true},
		{"header:X-Absent", request("acme", "s2", "u2", "hello"), true},
	} {
		o := &orders{spec: &spec.Spec{Routing: spec.Routing{HashKey: c.by}}}
		if got := o.hashKey(a) == o.hashKey(c.b); got != c.same {
			t.Errorf("by %s: same key %v, want %v", c.by, got, c.same)
		}
		if again := firstOrders(Config{Spec: o.spec}); again.hashKey(a) != o.hashKey(a) {
			t.Errorf("by %s: two instances come to different keys", c.by)
		}
	}
	o := &orders{spec: &spec.Spec{}}
	if byUser := o.hashKey(request("acme", "", "u1", "x")); byUser != o.hashKey(request("acme", "", "u1", "y")) {
		t.Error("without a session the body's user does not keep requests together")
	}
	if o.hashKey(request("acme", "", "", "")) != 0 {
		t.Error("a request with nothing to go by has a key")
	}
}

func TestAdapterStateFollowsTheReading(t *testing.T) {
	w := &worker{models: []engine.Model{{ID: "base"}, {ID: "sql", Parent: "base"}, {ID: "law", Parent: "base"}}}
	w.reading.Adapters = []string{"chat", "sql"}
	for _, c := range []struct {
		model string
		most  int64
		want  pick.Adapter
	}{
		{"base", 4, pick.AdapterNone},
		{"sql", 4, pick.AdapterHeld},
		{"law", 4, pick.AdapterFree},
		{"law", 2, pick.AdapterFull},
		{"law", 0, pick.AdapterNone},
		{"absent", 4, pick.AdapterNone},
	} {
		w.reading.MaxAdapters = c.most
		if got := w.adapter(c.model); got != c.want {
			t.Errorf("%s of %d places is %d, want %d", c.model, c.most, got, c.want)
		}
	}
}
