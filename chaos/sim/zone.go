package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/spillway-lb/spillway/geo"
)

// zone is a failure domain: workers, and the instances of the local tier before them.
type zone struct {
	region  *region
	name    string
	workers []*worker
	agents  []*agent
	down    bool
	deaths  int // causes of its death that last
}

// region is a place.
type region struct {
	at       int32
	name     string
	place    geo.Place
	zones    []*zone
	gateways []*gateway
	down     bool
	deaths   int
}

// seats of the random streams, so that adding one thing to a scenario does not change the chance of another.
const (
	seedZone = iota + 1
	seedWorkers
	seedGateways
	seedWAN
	seedStarts
)

func (r *run) newZone(reg *region, z *Zone) error {
	n := uint64(r.zones())
	out := &zone{region: reg, name: z.Name}
	chance := rand.New(rand.NewPCG(r.s.Seed, seedWorkers<<32|n))
	for i := range z.Groups {
		g := &z.Groups[i]
		for range g.Count {
			w, err := r.newWorker(out, g, len(out.workers)+1, chance)
			if err != nil {
				return err
			}
			out.workers, r.workers = append(out.workers, w), append(r.workers, w)
		}
	}
	reg.zones = append(reg.zones, out)
	for i := range max(z.Locals, 1) {
		if err := r.newAgent(out, instance(reg.name+"-"+z.Name, i, z.Locals)); err != nil {
			return err
		}
	}
	return nil
}

// zones is how many there are.
func (r *run) zones() (n int) {
	for _, reg := range r.regions {
		n += len(reg.zones)
	}
	return n
}

// instance is the name of one of several.
func instance(name string, i, of int) string {
	if of < 2 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i+1)
}
