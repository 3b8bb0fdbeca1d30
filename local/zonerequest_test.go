package local

import (
	"net/http"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/batch"
	"github.com/spillway-lb/spillway/local/sched"
)

func TestAffinityTextKeepsRequestsTogether(t *testing.T) {
	text := func(by, session, user string) string {
		v := &zoneRequest{httpRequest: &http.Request{Header: http.Header{"X-Session-Id": {session}, "X-Own": {session}}}}
		v.Envelope.User = user
		v.setAffinity(&zonePolicy{SchedulingPolicy: sched.NewSchedulingPolicy(&spec.Spec{Routing: spec.Routing{HashKey: by}}, "", nil, 0)})
		return v.AffinityText
	}
	for _, c := range []struct{ by, session, user, want string }{
		{"", "s1", "u1", "s1"},
		{"session", "s1", "u1", "s1"},
		{"session", "", "u1", "u1"},
		{"tenant", "s1", "u1", ""},
		{"prefix", "s1", "u1", ""},
		{"header:X-Own", "s1", "u1", "s1"},
		{"header:X-Absent", "s1", "u1", ""},
	} {
		if got := text(c.by, c.session, c.user); got != c.want {
			t.Errorf("by %q: session %q, user %q give %q, want %q", c.by, c.session, c.user, got, c.want)
		}
	}
}

// TestBatchOfTwoTenantsImplicatesNeither: its answer may be due to either.
func TestBatchOfTwoTenantsImplicatesNeither(t *testing.T) {
	of := func(names ...string) string {
		var requests []*zoneRequest
		var parts []*batch.RequestPart
		for _, n := range names {
			part, ok := batch.ReadEmbeddings([]byte(`{"model":"m","input":"hi"}`))
			if !ok {
				t.Fatal("a request that cannot be merged")
			}
			v := newZoneRequest(&http.Request{URL: newPathURL(openai.PathEmbeddings), Header: http.Header{}}, openai.ShapeEmbeddings)
			v.Tenant = n
			requests, parts = append(requests, v), append(parts, part)
		}
		return mergeRequests(t.Context(), requests, parts).TenantOfAnswer()
	}
	for want, names := range map[string][]string{"ann": {"ann"}, "bob": {"bob", "bob"}, "": {"ann", "ann", "bob"}} {
		if got := of(names...); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
