package global

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/global/notify"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// slowNotifyInterval is how often certificates and used budgets are looked at, which takes longer than the rest.
const slowNotifyInterval = 5 * time.Second

// notifier sends notifications of the fleet's events while this node leads, and of its own certificates always.
type notifier struct {
	s        *Server
	sender   *notify.Sender
	leaderAt time.Time    // when another node was last known to lead
	observed atomic.Int64 // how often the state of the fleet was observed; changes after the first are events
	unsent   atomic.Int64 // events that this node would send if it became the leader now
}

// openNotifications makes the sender of notifications where a webhook is configured.
func (s *Server) openNotifications() {
	if len(s.cfg.Notifications) == 0 {
		return
	}
	s.notifications = &notifier{s: s, sender: notify.NewSender(s.cfg.Name, s.cfg.Notifications, nil, s.log)}
	s.cfg.Registry.MustRegister(s.notifications.sender)
}

// runNotifier watches the fleet until ctx ends.
func (n *notifier) runNotifier(ctx context.Context) {
	fleet, certs := notify.NewWatcher(), notify.NewCertificateWatcher()
	var slowAt time.Time
	var used []notify.UsedLimit
	for sleepFor(ctx, notify.ObserveInterval) {
		now := time.Now()
		var events []notify.Event
		v := n.s.snapshot.Load()
		if now.Sub(slowAt) >= slowNotifyInterval {
			slowAt = now
			events = certs.ObserveExpiries(n.s.cfg.Name, n.certificateEnds(), now)
			if v != nil {
				used = listUsedLimits(v, now)
			}
		}
		if v != nil && v.source == agreedState {
			st := n.fleetState(v, now)
			st.UsedUp = used
			events = append(events, fleet.ObserveState(&st, now)...)
			n.unsent.Store(int64(fleet.CountUnsent()))
			n.observed.Add(1)
		}
		for _, e := range events {
			n.sender.AddEvent(e)
		}
	}
}

// certificateEnds returns when the certificates of this node expire, by name.
func (n *notifier) certificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, c := range n.s.certificateExpiries() {
		ends[c.Name] = c.EndsAt()
	}
	return ends
}

// fleetState returns what this node knows of the fleet.
func (n *notifier) fleetState(v *nodeSnapshot, now time.Time) notify.FleetState {
	leads := n.s.node.IsLeader()
	if contact := n.s.node.Status().LastContact; !leads && contact >= 0 {
		n.leaderAt = now.Add(-contact)
	}
	out := notify.FleetState{Unreachable: map[string]bool{}, SpecVersion: v.state.SpecVersion, Leads: leads, LeaderAt: n.leaderAt}
	for r := range v.Regions {
		x := &v.Regions[r]
		out.Unreachable[v.Spec.Regions[r].Name] = x.HasReport() && x.IsUnreachableByAll()
	}
	for _, d := range v.state.Drains {
		out.Drains = append(out.Drains, notify.DrainState{Path: d.Path, Actor: d.Actor, Reason: d.Reason, At: d.At})
	}
	if g := v.state.Rollout; g != nil {
		out.Rollout = &notify.RolloutState{Number: g.Number, Everywhere: g.IsEverywhere()}
	}
	return out
}

// listUsedLimits returns the budgets of the day that tenants have used up, by the reports of the gateways.
func listUsedLimits(v *nodeSnapshot, now time.Time) (out []notify.UsedLimit) {
	type usedBudget struct{ tenant, region string }
	used := map[usedBudget]capacity.TenantUsage{}
	for _, c := range v.Children.Children {
		for i := range c.Summary.TenantUsages {
			u := &c.Summary.TenantUsages[i]
			t := v.Spec.FindTenant(u.Tenant)
			if t == nil || u.Day != t.Budget.DayNumber(now) {
				continue
			}
			k := usedBudget{tenant: t.Name}
			if t.Limits.Scope != spec.ScopeGlobal {
				k.region = c.Summary.Path.Region
			}
			sum := used[k]
			sum.Day, sum.DayTokens, sum.DayMicros = u.Day, sum.DayTokens+u.DayTokens, sum.DayMicros+u.DayMicros
			used[k] = sum
		}
	}
	for k, u := range used {
		b, where := &v.Spec.FindTenant(k.tenant).Budget, ""
		if k.region != "" {
			where = " in region " + k.region
		}
		if b.TokensPerDay > 0 && u.DayTokens >= b.TokensPerDay {
			out = append(out, notify.UsedLimit{Tenant: k.tenant, Resource: "tokens" + where, Day: u.Day})
		}
		if b.DollarsPerDay > 0 && float64(u.DayMicros) >= b.DollarsPerDay*1e6 {
			out = append(out, notify.UsedLimit{Tenant: k.tenant, Resource: "budget" + where, Day: u.Day})
		}
	}
	return out
}

// testNotifications sends a test event to webhooks of this node.
func (n *notifier) testNotifications(ctx context.Context, q admin.NotifyTestRequest, actor string) (*admin.NotifyTestAnswer, error) {
	if n == nil {
		return nil, admin.BadRequestError("this node sends no notifications: none is configured", "add notifications to the node's config file, on every global node, and restart")
	}
	e := notify.NewTestEvent(n.s.cfg.Name, actor, time.Now())
	out := &admin.NotifyTestAnswer{Node: n.s.cfg.Name, Event: e.ID}
	results := n.sender.SendTest(ctx, e, q.Endpoint)
	if len(results) == 0 {
		return nil, admin.BadRequestError(fmt.Sprintf("this node has no webhook %q", q.Endpoint), "its config file lists them under notifications")
	}
	for _, r := range results {
		x := admin.NotifyTestResult{Endpoint: r.Endpoint, Seconds: r.Took.Seconds()}
		if r.Err != nil {
			x.Error = r.Err.Error()
		}
		out.Results = append(out.Results, x)
	}
	return out, nil
}
