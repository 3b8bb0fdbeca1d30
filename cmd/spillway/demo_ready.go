package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// workersReadyTimeout bounds the wait for the last worker to become ready, which usually takes about a second.
const workersReadyTimeout = 20 * time.Second

// waitForReadyWorkers waits until a global node reports every worker of the fleet as ready. DNS answers earlier than that, and a
// request in between is rejected for lack of capacity.
func waitForReadyWorkers(ctx context.Context, p *fleet.Files) error {
	ctx, cancel := context.WithTimeout(ctx, workersReadyTimeout)
	defer cancel()
	c, err := admin.Dial("unix://"+p.NodesByRole("global")[0].AdminSocket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	want := len(p.NodesByRole("worker"))
	ready := 0
	for {
		if s, err := c.GetStatus(ctx); err == nil {
			if ready = countReadyWorkers(s); ready == want && s.SpecVersion > 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d workers are ready after %s: see `spillway status --workers`", ready, want, workersReadyTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// countReadyWorkers counts the ready workers of reporting regions. In a demo fleet each worker serves one model.
func countReadyWorkers(s *admin.Status) int {
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
