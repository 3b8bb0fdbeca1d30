package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// settleTimeout bounds the wait for the last worker to report; it takes about a second.
const settleTimeout = 20 * time.Second

// settled waits until a global node has heard every worker of the planet report ready: names are answered long before
// that, and a request that comes in between is refused for want of capacity, as it should be.
func settled(ctx context.Context, p *fleet.Planet) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	c, err := admin.Dial("unix://"+p.Of("global")[0].Socket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	want := len(p.Of("worker"))
	ready := 0
	for {
		if s, err := c.Status(ctx); err == nil {
			if ready = readyWorkers(s); ready == want && s.SpecVersion > 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers report ready after %s: see `spillway status --workers`", ready, want, settleTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readyWorkers counts what the regions that are heard of report; on a planet each worker serves one model.
func readyWorkers(s *admin.Status) int {
	n := 0
	for _, r := range s.Regions {
		for _, m := range r.Models {
			if r.State == admin.StateFresh {
				n += int(m.Ready)
			}
		}
	}
	return n
}
