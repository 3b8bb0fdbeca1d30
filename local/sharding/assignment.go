// Package sharding decides which of a zone's local instances serves which worker.
//
// All instances of a zone know and scrape all its workers. One live instance serves each worker and reports its capacity,
// chosen by rendezvous hashing: when an instance dies only its own workers move, and they return when it does. The
// gateways report which instances are live, since every instance reports to them. While no gateway is connected, the last
// known instances that answer heartbeats count as live. PeerTable holds these reports; Assignment is the result.
//
// Two instances may briefly both own a worker. That is harmless, since each sees the other's load in its scrapes. A worker
// without owner would be worse, so when in doubt an instance keeps ownership. The package never sends anything and ignores
// how loaded an instance is.
package sharding

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Assignment maps workers to the instances that serve them. It is immutable. The zero Assignment gives every worker to the
// caller.
type Assignment struct {
	self    string
	members []assignedInstance
}

type assignedInstance struct {
	name    string
	hash    uint64
	workers []string // sorted; nil: not known
}

// AssignWorkers returns the assignment at now.
func (z *PeerTable) AssignWorkers(now time.Time) Assignment {
	d := Assignment{self: z.self}
	for _, name := range z.liveInstances(now) {
		m := assignedInstance{name: name, hash: xxhash.Sum64String(name)}
		if c := z.contacts[name]; c != nil && name != z.self {
			m.workers = c.workers
		}
		d.members = append(d.members, m)
	}
	return d
}

// Members lists the instances that share the workers, sorted.
func (d *Assignment) Members() []string {
	out := make([]string, len(d.members))
	for i := range d.members {
		out[i] = d.members[i].name
	}
	return out
}

// OwnerOf returns the instance that serves a worker which this instance knows. A peer that has reported its workers serves no
// others. A peer that has not is assumed to reach all of them, except those with acquired set: a worker that registered here
// is owned here until a peer reports it too.
func (d *Assignment) OwnerOf(worker string, acquired bool) string {
	best, most := d.self, uint64(0)
	w := xxhash.Sum64String(worker)
	for i := range d.members {
		m := &d.members[i]
		if m.name != d.self {
			if m.workers == nil && acquired {
				continue
			}
			if _, found := slices.BinarySearch(m.workers, worker); m.workers != nil && !found {
				continue
			}
		}
		if s := mixHashes(w, m.hash); s >= most {
			best, most = m.name, s
		}
	}
	return best
}

// mixHashes combines two hashes into one that is uniformly distributed.
func mixHashes(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03)
	h := hi ^ lo
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// AssignmentInterval is how often an instance assigns the zone's workers to its instances.
const AssignmentInterval = 250 * time.Millisecond

// ComputeListVersion hashes a list of workers, so that an unchanged list is not sent again. The result is not 0.
func ComputeListVersion(workers []string) uint64 {
	return max(1, xxhash.Sum64String(strings.Join(workers, "\n")))
}
