package sim

import (
	"fmt"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// FleetZone is a failure domain: workers, and the local tier in front of them.
type FleetZone struct {
	Name   string
	Groups []WorkerGroup
	// Locals is the number of instances of the local tier, which divide the workers. Default 1; several need
	// Gateways.
	Locals int
}

// WorkerGroup is a number of equal workers.
type WorkerGroup struct {
	// Count of workers, at least 1.
	Count int
	// GPU and Model as in gpu.LookupProfile; TP is the number of GPUs in tensor parallelism, 0 for the fewest that
	// hold the model.
	GPU, Model string
	TP         int
	// Limits of the engine; zero fields are the engine's own defaults.
	Limits gpu.EngineLimits
	// Slowdown is a factor of its step times that the router is not configured with; 0 is 1.
	Slowdown float64
	// KVBlocks overrides the KV cache, in blocks of gpu.BlockTokens tokens; 0: what fits next to the weights.
	KVBlocks int
	// HostBlocks is the size of the host-memory cache tier, in blocks; 0: no such tier.
	HostBlocks int
}

func (z *FleetZone) checkZone() (workers int, err error) {
	if z.Locals < 0 || z.Locals > maxInstances {
		return 0, fmt.Errorf("%d instances of the local tier: use 1 to %d", z.Locals, maxInstances)
	}
	for i := range z.Groups {
		g := &z.Groups[i]
		if g.Count < 1 {
			return 0, fmt.Errorf("group %d counts %d workers: use 1 or more", i+1, g.Count)
		}
		if g.Slowdown < 0 || g.Slowdown > 1000 || g.Slowdown != g.Slowdown {
			return 0, fmt.Errorf("group %d: slowdown %v: use 0.01 to 1000", i+1, g.Slowdown)
		}
		if g.KVBlocks < 0 || g.HostBlocks < 0 {
			return 0, fmt.Errorf("group %d: %d blocks and %d in the host's memory: use 0 or more", i+1, g.KVBlocks, g.HostBlocks)
		}
		if _, err := gpu.LookupProfile(g.GPU, g.Model, g.TP); err != nil {
			return 0, fmt.Errorf("group %d: %w", i+1, err)
		}
		workers += g.Count
	}
	if workers > perfmodel.MaxWorkers {
		return 0, fmt.Errorf("%d workers: one zone takes %d: split it", workers, perfmodel.MaxWorkers)
	}
	return workers, nil
}

// declaredGPU is the group's GPU as an operator declares it.
func (g *WorkerGroup) declaredGPU(p *gpu.WorkerProfile) string {
	if p.TP > 1 {
		return fmt.Sprintf("%sx%d", p.GPU, p.TP)
	}
	return p.GPU
}

func (z *FleetZone) countWorkers() (n int) {
	for i := range z.Groups {
		n += z.Groups[i].Count
	}
	return n
}
