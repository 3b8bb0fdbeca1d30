package sched

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// TestShareLimitsFollowVerdict: a tenant that runs more than its equal part leaves headroom, in a placement and in the
// explanation of one; requests of a less urgent class do so while a more urgent one runs.
func TestShareLimitsFollowVerdict(t *testing.T) {
	now := time.Unix(1e9, 0)
	f, _ := newBusyScheduler(t, now)
	p := f.groups["m"]
	enter := func(tenant string, c spec.Class, n int) {
		for range n {
			p.queue.RecordDirectEntry(&queue.Item[*Request]{Tenant: tenant, Class: c, Work: 100, Cost: 0.1}, now)
		}
	}
	enter("heavy", spec.Standard, 5)
	request := func(tenant string, c spec.Class) *Request {
		return &Request{Tenant: tenant, Model: "m", EstimatedTokens: 500, Class: c, ArrivedAt: now, ExcludedWorkers: [2]int32{-1, -1}}
	}
	for _, c := range []struct {
		what, tenant string
		class        spec.Class
		crowded      bool
		others       int // requests that another tenant starts before
		want         pick.ShareLimits
	}{
		{"alone", "heavy", spec.Standard, false, 0, pick.ShareLimits{}},
		{"alone, and others of its own wait", "heavy", spec.Standard, true, 0, pick.ShareLimits{Contended: true}},
		{"above its equal part, and no request waits", "heavy", spec.Standard, false, 1, pick.ShareLimits{Contended: true, ReserveHeadroom: true}},
		{"under its equal part", "light", spec.Standard, true, 0, pick.ShareLimits{}},
		{"less urgent than what runs", "light", spec.Batch, false, 0, pick.ShareLimits{Contended: true, ReserveHeadroom: true}},
	} {
		enter("light", spec.Standard, c.others)
		v := request(c.tenant, c.class)
		f.Admission.setShareLimits(v, p, c.crowded, now)
		if v.Query.Share != c.want {
			t.Errorf("%s: limits %+v, want %+v", c.what, v.Query.Share, c.want)
		}
		if c.crowded {
			continue
		}
		v = request(c.tenant, c.class)
		f.Reports.ExplainChoice(v, &explain.Explanation{}, now)
		if v.Query.Share != c.want {
			t.Errorf("%s: an explanation uses the limits %+v, a placement %+v", c.what, v.Query.Share, c.want)
		}
	}
}
