package capacity

import (
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Summary is the capacity of a subtree at one moment, by model. All amounts are integers, so that Merge is exactly
// associative and the order in which children report can never change a total.
//
// The zero Summary is Merge's identity: a subtree that has nothing. It is not the same as no news; see Book.
type Summary struct {
	Path Path
	// Boot and Seq number the statements of one instance: the greater (Boot, Seq) is the newer. Boot starts as the
	// process's start time in Unix nanoseconds and is raised by the child when a parent remembers a greater one, so
	// that a clock set back cannot silence an instance. Zero in a merged Summary.
	Boot, Seq uint64
	// Endpoint is where this instance takes forwarded requests, "host:port". Empty in a merged Summary.
	Endpoint string
	// Draining instances take no new work. In a merged Summary: every part is draining.
	Draining bool
	// Models in ascending order of Name, each once.
	Models []ModelCapacity
	// Acks in ascending order of Parent: the highest ticket of that parent that this Summary already counts, so that
	// the parent's ledger is credited exactly and no clocks are compared.
	Acks []LedgerAck
	// Demand offered by clients, in ascending order of (Service, Model, Cell). Only gateways fill it.
	Demand []CellDemand
	// RTTs that gateways measured on clients' connections, in ascending order of Cell. Only gateways fill it.
	RTTs []CellRTT
	// Networks of clients that ask for much, in ascending order of (Service, Cell, Number). Only gateways fill it.
	Networks []ClientNetwork
	// Outcomes of requests, in ascending order of (Stage, Service, Model). Only gateways fill it, and only while a stage is
	// under way.
	Outcomes []OutcomeCounts
	// TenantUsages of tenants, in ascending order of Tenant. Only gateways fill it.
	TenantUsages []TenantUsage
	// HeldLeases is which leases a gateway spends by. Zero in a merged Summary.
	HeldLeases HeldLeases

	// isMerged is set once two non-zero parts were merged, so that a sum whose fields happen to be zero (two instances
	// of different regions that serve nothing) is not mistaken for the identity.
	isMerged bool
	// unknown holds the wire fields of a newer version, so that an older node passes them on.
	unknown string
}

// ModelCapacity is what a subtree can do for one model.
type ModelCapacity struct {
	Name string
	// Ready workers take requests now; Total also counts those that are loading, draining, ejected or lost.
	Ready, Total int64
	// Hardware holds learned rates by GPU type, in ascending order of Name.
	Hardware []HardwareRates
	// KVTotal and KVFree are KV-cache room in tokens, over ready workers.
	KVTotal, KVFree int64
	// SlotsTotal and SlotsFree are sequence slots, over ready workers.
	SlotsTotal, SlotsFree int64
	// Running and Queued requests; Queued counts both the engines' queues and the local tier's.
	Running, Queued int64
	// Backlog is prefill work accepted and not yet done, in uncached prompt tokens.
	Backlog int64
	// WorkAhead is, by class, the work in prefill tokens that stands before a new request of that class: predicted queue
	// wait times prefill rate. Kept as work, not as time, so that it adds up: Wait divides it by the merged rate.
	WorkAhead [spec.NumClasses]int64
	// Headroom is, by class, the extra prompt tokens/s that can be taken inside the class's TTFT target.
	Headroom [spec.NumClasses]int64
	// Warm workers could be ready within a second (sleeping, or loaded for another model); Cold ones need a load.
	Warm, Cold int64
	// WarmMillis and ColdMillis are how long the soonest of them takes to be ready, in milliseconds; 0: not known.
	WarmMillis, ColdMillis int64
	// CostMicros is the price of the ready workers, in millionths of a dollar per hour.
	CostMicros int64
	// MaxContext is the longest context any ready worker takes, in tokens.
	MaxContext int64
	// Prefixes is a bounded sketch of hot cached prefixes, in descending order of Tokens, then ascending order of Hash.
	Prefixes []PrefixEntry
	// Pools is what the workers of a pool can do for the model, in ascending order of Name, which is the pool's. They have
	// neither Prefixes nor Pools. The model's own amounts are those of the workers that take anybody's requests or, where
	// there are none, of all.
	Pools []ModelCapacity

	unknown string // see Summary
}

// HardwareRates is one GPU type's share of a Model's rates.
type HardwareRates struct {
	Name  string
	Ready int64
	// PrefillRate and DecodeRate are learned sums over ready workers, in tokens/s.
	PrefillRate, DecodeRate int64

	unknown string // see Summary
}

// PrefixEntry is one entry of the sketch: a cached prefix and its length on the best holder.
type PrefixEntry struct {
	Hash   uint64
	Tokens int64
}

// LedgerAck credits one parent instance's ledger.
type LedgerAck struct {
	Parent string // instance name of the parent
	Boot   uint64 // the parent's boot, so that a restarted parent's tickets are not confused with the old ones
	Ticket uint64 // every ticket up to this one is counted in the Summary

	unknown string // see Summary
}

// CellDemand is what clients of one cell ask of one service and model, including what was queued and refused.
type CellDemand struct {
	Service, Model, Cell string
	// TokensPerSec is offered work in prefill-equivalent tokens/s; RequestsPerSecMilli is requests per 1,000 s.
	TokensPerSec, RequestsPerSecMilli int64

	unknown string // see Summary
}

// PrefillRate is the sum over hardware, in tokens/s.
func (m *ModelCapacity) PrefillRate() int64 {
	var r int64
	for i := range m.Hardware {
		r += m.Hardware[i].PrefillRate
	}
	return r
}

// DecodeRate is the sum over hardware, in tokens/s.
func (m *ModelCapacity) DecodeRate() int64 {
	var r int64
	for i := range m.Hardware {
		r += m.Hardware[i].DecodeRate
	}
	return r
}

// PredictWait is the predicted time until a new request of class c would start its prefill. ok is false when nothing is
// ready to do it, which is not the same as zero wait.
func (m *ModelCapacity) PredictWait(c spec.Class) (wait time.Duration, ok bool) {
	r := m.PrefillRate()
	if r <= 0 || m.Ready <= 0 {
		return 0, false
	}
	return time.Duration(min(float64(m.WorkAhead[c])/float64(r), maxPredictedWait.Seconds()) * float64(time.Second)), true
}

// maxPredictedWait is the longest wait that is predicted: a longer one would overflow a time.Duration, and decides nothing more.
const maxPredictedWait = 24 * time.Hour

// FindModel returns the entry of that name, or nil. It allocates nothing.
func (s *Summary) FindModel(name string) *ModelCapacity {
	lo, hi := 0, len(s.Models)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.Models[mid].Name < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Models) && s.Models[lo].Name == name {
		return &s.Models[lo]
	}
	return nil
}
