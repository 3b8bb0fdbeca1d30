package local

import (
	"net/http"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
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
