package sim

import (
	"github.com/spillway-lb/spillway/local/sched"
	"github.com/spillway-lb/spillway/local/sharding"
)

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
