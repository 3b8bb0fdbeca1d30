package live

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

const (
	// probeInterval is the time between two queries of a node for one region's clients.
	probeInterval = 250 * time.Millisecond
	// pageInterval is the time between two readings of a node's metrics.
	pageInterval = time.Second
	// usageInterval is the time between two records of memory and goroutines.
	usageInterval = 5 * time.Second
	// longHold is the minimum time of resolvers that hold answers, as in the simulator.
	longHold = 60 * time.Second
)

// observers watch the fleet from outside.
type observers struct {
	file   *drill.DrillFile
	target *target
	events *eventQueue
	leader *leaderWatch
}

// startObservers starts every observer; Wait returns when all have ended after the context.
func startObservers(ctx context.Context, f *drill.DrillFile, t *target, events *eventQueue) *sync.WaitGroup {
	o := &observers{file: f, target: t, events: events, leader: &leaderWatch{events: events}}
	var all sync.WaitGroup
	for _, n := range t.globals {
		epoch := &nodeEpoch{}
		all.Go(func() { o.probeNode(ctx, n, epoch) })
		all.Go(func() { o.readGlobal(ctx, n, epoch) })
	}
	for i := range t.regions {
		all.Go(func() { o.runResolver(ctx, i, false) })
		all.Go(func() { o.runResolver(ctx, i, true) })
	}
	for _, role := range []string{"regional", "local"} {
		for _, n := range t.files.NodesByRole(role) {
			all.Go(func() { o.readUsage(ctx, n) })
		}
	}
	return &all
}

// runEvery calls a function at an interval until the context ends.
func runEvery(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probeNode queries a node for clients of each region in turn, and records its answers: at a change, and once a second.
func (o *observers) probeNode(ctx context.Context, n fleet.Node, epoch *nodeEpoch) {
	last, counts, shown, sized := map[string]string{}, map[string]int{}, map[string]time.Time{}, false
	up := true
	runEvery(ctx, probeInterval, func() {
		for i, client := range o.target.regions {
			before := time.Now()
			r, err := o.target.queryDNS(ctx, n, i)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				if o.target.isDown(n.ID()) {
					up = false
					return
				}
				if up { // a node that has been given back may still be starting
					o.events.add(drill.Event{At: o.events.since(before), Kind: drill.DNSFailed, Node: n.ID(), Text: client, Code: shortError(err)})
				}
				continue
			}
			if !up && !o.target.isDown(n.ID()) {
				up = true
				o.events.add(drill.Event{Kind: drill.NodeState, Node: n.ID(), Text: "up"})
			}
			if !sized {
				sized = true
				o.events.add(drill.Event{Kind: drill.SizeReturned, Node: n.ID(), Number: uint64(r.queryLen), Value: float64(r.answerLen)})
			}
			counts[client]++
			if last[client] == r.region && time.Since(shown[client]) < time.Second {
				continue
			}
			o.events.add(drill.Event{Kind: drill.DNSAnswered, Node: n.ID(), Text: client, Target: r.region, Number: epoch.get(), Value: r.ttl.Seconds(), Count: counts[client]})
			last[client], counts[client], shown[client] = r.region, 0, time.Now()
		}
	})
}

// shortError is an error without addresses.
func shortError(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return text
}

// readGlobal reads the metrics of a global node: epoch, leader, term, ages and states of regions, memory.
func (o *observers) readGlobal(ctx context.Context, n fleet.Node, epoch *nodeEpoch) {
	states := map[string]string{}
	nextUsage := time.Time{}
	runEvery(ctx, pageInterval, func() {
		page, err := o.target.fetchMetrics(ctx, n)
		if err != nil {
			o.leader.observe(n.ID(), false, 0)
			return
		}
		if e := uint64(page["spillway_global_plan_epoch"]); epoch.set(e) {
			o.events.add(drill.Event{Kind: drill.PlanApplied, Node: n.ID(), Number: e})
		}
		o.leader.observe(n.ID(), page["spillway_global_raft_leader"] == 1, uint64(page["spillway_global_raft_term"]))
		for name, v := range page {
			if region, ok := labelOf(name, "spillway_global_region_age_seconds", "region"); ok {
				o.events.add(drill.Event{Kind: drill.SummaryAge, Node: n.ID(), Target: region, Value: v})
			}
			region, ok := labelOf(name, "spillway_global_region_up", "region")
			state, _ := labelOf(name, "spillway_global_region_up", "state")
			if ok && states[region] != state {
				states[region] = state
				o.events.add(drill.Event{Kind: drill.RegionState, Node: n.ID(), Target: region, Text: state})
			}
		}
		if now := time.Now(); now.After(nextUsage) {
			nextUsage = now.Add(usageInterval)
			o.recordUsage(n, page)
		}
	})
}

// labelOf is the value of a label of a sample of a metric.
func labelOf(sample, metric, label string) (string, bool) {
	rest, ok := strings.CutPrefix(sample, metric+"{")
	if !ok {
		return "", false
	}
	_, rest, ok = strings.Cut(rest, label+`="`)
	if !ok {
		return "", false
	}
	value, _, ok := strings.Cut(rest, `"`)
	return value, ok
}

func (o *observers) recordUsage(n fleet.Node, page map[string]float64) {
	o.events.add(drill.Event{Kind: drill.ProcessUsage, Node: n.ID(), Number: uint64(page["go_goroutines"]), Value: page["process_resident_memory_bytes"]})
}

// readUsage records memory and goroutines of a node.
func (o *observers) readUsage(ctx context.Context, n fleet.Node) {
	runEvery(ctx, usageInterval, func() {
		if page, err := o.target.fetchMetrics(ctx, n); err == nil {
			o.recordUsage(n, page)
		}
	})
}

// runResolver resolves the service for clients of a region through a cache of its own.
func (o *observers) runResolver(ctx context.Context, region int, holds bool) {
	name := fmt.Sprintf("%s TTLs %s", drill.ResolverKeeps, o.target.regions[region])
	if holds {
		name = fmt.Sprintf("%s answers %s", drill.ResolverHolds, o.target.regions[region])
	}
	answer, until := "", time.Time{}
	runEvery(ctx, probeInterval, func() {
		if time.Now().Before(until) {
			return
		}
		for i := range o.target.globals {
			r, err := o.target.queryDNS(ctx, o.target.globals[(region+i)%len(o.target.globals)], region)
			if err != nil {
				continue
			}
			if holds {
				r.ttl = max(r.ttl, longHold)
			}
			until = time.Now().Add(r.ttl)
			if r.region != answer {
				answer = r.region
				o.events.add(drill.Event{Kind: drill.ResolverAnswered, Node: name, Text: o.target.regions[region], Target: answer})
			}
			return
		}
	})
}
