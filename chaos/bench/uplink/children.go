package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	// childrenGCPercent is the GC target of the children, in percent of their live data: in a real fleet they are a
	// thousand machines, and here they should cost the parent as little as possible.
	childrenGCPercent = 400
	maxConnecting     = 8          // children that are connecting
	usualCostMicros   = 16_000_000 // of a model, in millionths of a dollar per hour
)

// childID is child number n: a local instance of a zone of its own.
func childID(n int) identity.ID {
	return identity.ID{TrustDomain: "bench.test", Role: identity.RoleLocal, Region: "us", Zone: fmt.Sprintf("z%04d", n), Name: fmt.Sprintf("l%04d", n)}
}

// runChildren runs all children until ctx ends or their parent closes standard input.
func runChildren(ctx context.Context, o *uplinkBenchOptions) error {
	stop, err := startProfile(o.profile)
	if err != nil {
		return err
	}
	defer stop()
	debug.SetGCPercent(childrenGCPercent)
	var all []*uplink.Child
	for n := range o.children {
		c, err := o.newChild(n)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if err := startSessions(ctx, all); err != nil {
		return err
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { _ = c.Stop(end) }) // the process ends
	}
	wg.Wait()
	return nil
}

// startSessions starts children, a few at a time: all handshakes at once are a different test, which may not finish
// on a machine with other load.
func startSessions(ctx context.Context, all []*uplink.Child) error {
	for n, c := range all {
		if err := c.Start(ctx); err != nil {
			return err
		}
		for n >= maxConnecting && !all[n-maxConnecting].Sessions()[0].Connected {
			if !sleepContext(ctx, 2*time.Millisecond) {
				return nil
			}
		}
	}
	return nil
}

func (o *uplinkBenchOptions) newChild(n int) (*uplink.Child, error) {
	certs, err := identity.LoadCerts(childID(n).FilesIn(o.dir), nil)
	if err != nil {
		return nil, err
	}
	return uplink.NewChild(uplink.ChildConfig{
		Certs: certs, Parents: []string{o.parent}, ParentRole: identity.RoleGateway, Endpoint: "127.0.0.1:1",
		BuildSummary: o.makeSummaries(),
	})
}

// makeSummaries makes summaries of a zone in which some models are busy: those change each time, the others never do.
func (o *uplinkBenchOptions) makeSummaries() func(time.Time) capacity.Summary {
	idle := make([]capacity.ModelCapacity, o.models)
	for i := range idle {
		idle[i] = capacity.ModelCapacity{
			Name: fmt.Sprintf("meta-llama/llama-3.1-%03d-instruct", i), Ready: 4, Total: 4, KVTotal: 1_600_000, KVFree: 1_600_000,
			SlotsTotal: 1024, SlotsFree: 1024, Headroom: [3]int64{80_000, 80_000, 80_000}, MaxContext: 131_072, CostMicros: usualCostMicros,
			Hardware: []capacity.HardwareRates{{Name: "H100-SXM", Ready: 4, PrefillRate: 80_000, DecodeRate: 9_000}},
		}
	}
	turn := int64(0)
	return func(now time.Time) capacity.Summary {
		turn++
		s := capacity.Summary{Models: make([]*capacity.ModelCapacity, len(idle))}
		for i := range idle {
			m := idle[i]
			s.Models[i] = &m
		}
		for i := range min(o.changing, len(s.Models)) {
			m := s.Models[i]
			busy := turn*7919%61 + int64(i)
			m.Running, m.Backlog, m.WorkAhead = busy, 1500*busy, [3]int64{800 * busy, 900 * busy, 1500 * busy}
			m.KVFree -= 2000 * busy
			m.SlotsFree -= busy
			m.Headroom = [3]int64{80_000 - 900*busy, 80_000 - 700*busy, 80_000 - 300*busy}
		}
		if o.changing > 0 && len(s.Models) > 0 {
			stampSummary(&s, now)
		}
		s.Acks = []capacity.LedgerAck{{Parent: "gw1", Boot: 1_763_740_000_000_000_000, Ticket: uint64(turn)}}
		return s
	}
}
