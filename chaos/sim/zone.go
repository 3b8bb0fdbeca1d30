package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/spillway-lb/spillway/geo"
)

// zoneState is a failure domain: workers, and the instances of the local tier in front of them.
type zoneState struct {
	region      *regionState
	name        string
	workers     []*simulatedWorker
	instances   []*localInstance
	down        bool
	deathCauses int // active causes of its death
}

// regionState is a region.
type regionState struct {
	index       int32
	name        string
	location    geo.Location
	zones       []*zoneState
	gateways    []*gatewayInstance
	down        bool
	deathCauses int
}

// Stream numbers of the random generators, so that an addition to a scenario does not change other random draws.
const (
	seedZone = iota + 1
	seedWorkers
	seedGateways
	seedWAN
	seedStarts
)

func (r *simulation) addZone(reg *regionState, z *FleetZone) error {
	n := uint64(r.countZones())
	out := &zoneState{region: reg, name: z.Name}
	chance := rand.New(rand.NewPCG(r.scenario.Seed, seedWorkers<<32|n))
	for i := range z.Groups {
		g := &z.Groups[i]
		for range g.Count {
			w, err := r.newSimulatedWorker(out, g, len(out.workers)+1, chance)
			if err != nil {
				return err
			}
			out.workers, r.workers = append(out.workers, w), append(r.workers, w)
		}
	}
	reg.zones = append(reg.zones, out)
	for i := range max(z.Locals, 1) {
		if err := r.addLocalInstance(out, instanceName(reg.name+"-"+z.Name, i, z.Locals)); err != nil {
			return err
		}
	}
	return nil
}

// countZones is the number of zones.
func (r *simulation) countZones() (n int) {
	for _, reg := range r.regions {
		n += len(reg.zones)
	}
	return n
}

// instanceName is the name of one of several instances.
func instanceName(name string, i, of int) string {
	if of < 2 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i+1)
}
