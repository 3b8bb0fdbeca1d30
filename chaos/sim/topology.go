package sim

import (
	"fmt"
	"net/netip"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/local/sched"
	"github.com/spillway-lb/spillway/local/sharding"
)

// topology is what the fleet consists of: every part once, by index, and by the names that parts use for each other.
type topology struct {
	regions        []*regionState
	instances      []*localInstance
	handles        []*workerHandle
	workers        []*simulatedWorker
	gateways       []*gatewayInstance
	gatewayByAddr  map[netip.Addr]*gatewayInstance // by the address that clients connect to
	gatewayByName  map[string]*gatewayInstance
	instanceByName map[string]*localInstance
}

func newTopology() *topology {
	return &topology{gatewayByAddr: map[netip.Addr]*gatewayInstance{}, gatewayByName: map[string]*gatewayInstance{}, instanceByName: map[string]*localInstance{}}
}

// clientRegion is the region of a request's client.
func (tp *topology) clientRegion(q *load.Request) *regionState {
	if i := int(q.Region); i > 0 && i < len(tp.regions) {
		return tp.regions[i]
	}
	return tp.regions[0]
}

func (tp *topology) findZone(region, zone string) *zoneState {
	for _, reg := range tp.regions {
		for _, z := range reg.zones {
			if reg.name == region && z.name == zone {
				return z
			}
		}
	}
	return nil // checkScenario has verified it
}

// countZones is the number of zones.
func (tp *topology) countZones() (n int) {
	for _, reg := range tp.regions {
		n += len(reg.zones)
	}
	return n
}

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

// instanceName is the name of one of several instances.
func instanceName(name string, i, of int) string {
	if of < 2 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i+1)
}

// localInstance is one instance of a zone's local tier.
type localInstance struct {
	index         int32 // in topology.instances
	zone          *zoneState
	name          string
	sim           *zoneScheduler
	handles       []*workerHandle // by the worker's index in the zone
	pumpScheduled bool
	down          bool
	deathCauses   int // active causes of its death
	startCount    uint64
	sender        summarySender
	peers         *sharding.PeerTable // its view of the zone's other instances; nil if there are none
	applied       directiveVersion    // versions of the gateways' directives in force
}

// workerHandle is the state of a worker at one instance of its zone.
type workerHandle struct {
	index        int32 // in topology.handles
	instance     *localInstance
	worker       *simulatedWorker
	simWorker    *sched.Worker
	scrapeJitter sched.ScrapeJitter
	decoding     int // running answers of this instance after their first token
}
