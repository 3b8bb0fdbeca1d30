package capacity

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Summary is the capacity of a subtree at one moment, by model. All amounts are integers, so that MergeSummaries is
// exactly associative and totals do not depend on the order of reports.
//
// The zero Summary is the identity of MergeSummaries: a subtree with no capacity. A missing summary is something else;
// see SummaryTable.
type Summary struct {
	Path Path
	// Boot and Seq number the summaries of one instance: the greater (Boot, Seq) is newer. Boot is the start time of
	// the process in Unix nanoseconds, or a greater number if a parent holds a greater one, so that the summaries of an
	// instance whose clock was set back are accepted. Zero in a merged Summary.
	Boot, Seq uint64
	// Endpoint is the address for forwarded requests, "host:port". Empty in a merged Summary.
	Endpoint string
	// Draining instances accept no new work. In a merged Summary: every part is draining.
	Draining bool
	// Models in ascending order of Name, each once. Summaries share those that do not differ: a model of a summary in
	// use is never written to.
	Models []*ModelCapacity
	// Acks in ascending order of Parent: the highest ticket of that parent that this Summary already counts. With it
	// the parent's ledger credits exactly the requests that are not in the Summary, without comparing clocks.
	Acks []LedgerAck
	// Demand of clients, in ascending order of (Service, Model, Cell). Only gateways fill it.
	Demand []CellDemand
	// RTTs that gateways measured on clients' connections, in ascending order of Cell. Only gateways fill it.
	RTTs []CellRTT
	// Networks of clients with much demand, in ascending order of (Service, Cell, Number). Only gateways fill it.
	Networks []ClientNetwork
	// Outcomes of requests, in ascending order of (Stage, Service, Model). Only gateways fill it, and only during a
	// stage.
	Outcomes []OutcomeCounts
	// TenantUsages in ascending order of Tenant. Only gateways fill it.
	TenantUsages []TenantUsage
	// HeldLeases are the leases in force at a gateway. Zero in a merged Summary.
	HeldLeases HeldLeases

	// isMerged is set when two non-zero parts are merged: a sum whose fields are all zero (two instances of different
	// regions that serve nothing) is not the identity.
	isMerged bool
	// unknown holds the encoded fields of a newer version, so that an older node forwards them.
	unknown string
}

// ModelCapacity is the capacity of a subtree for one model.
type ModelCapacity struct {
	Name string
	// Ready workers accept requests now; Total also counts those that are loading, draining, ejected or unreachable.
	Ready, Total int64
	// Hardware holds learned rates by GPU type, in ascending order of Name.
	Hardware []HardwareRates
	// KVTotal and KVFree are KV-cache capacity in tokens, over ready workers.
	KVTotal, KVFree int64
	// SlotsTotal and SlotsFree are sequence slots, over ready workers.
	SlotsTotal, SlotsFree int64
	// Running and Queued requests; Queued counts both the engines' queues and the local tier's.
	Running, Queued int64
	// Backlog is accepted prefill work that is not done yet, in uncached prompt tokens.
	Backlog int64
	// WorkAhead is, by class, the work in prefill tokens before a new request of that class: predicted queue wait times
	// prefill rate. It is stored as work because work can be summed and time cannot: PredictWait divides it by the
	// merged rate.
	WorkAhead [spec.NumClasses]int64
	// Headroom is, by class, the additional prompt tokens/s that fit inside the class's TTFT target.
	Headroom [spec.NumClasses]int64
	// Warm workers can be ready within a second (sleeping, or loaded for another model); Cold ones must load the model.
	Warm, Cold int64
	// WarmMillis and ColdMillis are the shortest times until one of them is ready, in milliseconds; 0: unknown.
	WarmMillis, ColdMillis int64
	// CostMicros is the price of the ready workers, in millionths of a dollar per hour.
	CostMicros int64
	// MaxContext is the longest context that any ready worker accepts, in tokens.
	MaxContext int64
	// Prefixes is a bounded sketch of hot cached prefixes, in descending order of Tokens, then ascending order of Hash.
	Prefixes []PrefixEntry
	// Pools is the capacity of each worker pool for the model, in ascending order of Name, the name of the pool. They
	// have neither Prefixes nor Pools. The model's own amounts are those of the workers in no pool or, if there are
	// none, of all workers.
	Pools []*ModelCapacity

	unknown string // see Summary
}

// HardwareRates are the rates of one GPU type for a model.
type HardwareRates struct {
	Name  string
	Ready int64
	// PrefillRate and DecodeRate are sums of learned rates over ready workers, in tokens/s.
	PrefillRate, DecodeRate int64

	unknown string // see Summary
}

// PrefixEntry is one entry of the sketch: a cached prefix and its length at the best prefix holder.
type PrefixEntry struct {
	Hash   uint64
	Tokens int64
}

// LedgerAck acknowledges the tickets of one parent instance.
type LedgerAck struct {
	Parent string // instance name of the parent
	Boot   uint64 // the parent's boot, which separates the tickets of a restarted parent from earlier ones
	Ticket uint64 // all tickets up to this one are counted in the Summary

	unknown string // see Summary
}

// CellDemand is the demand of the clients of one cell for one service and model, including queued and refused requests.
type CellDemand struct {
	Service, Model, Cell string
	// TokensPerSec is offered work in prefill-equivalent tokens/s; RequestsPerSecMilli is requests per 1,000 s.
	TokensPerSec, RequestsPerSecMilli int64

	unknown string // see Summary
}

// PrefillRate returns the sum over hardware, in tokens/s.
func (m *ModelCapacity) PrefillRate() int64 {
	var r int64
	for i := range m.Hardware {
		r += m.Hardware[i].PrefillRate
	}
	return r
}

// DecodeRate returns the sum over hardware, in tokens/s.
func (m *ModelCapacity) DecodeRate() int64 {
	var r int64
	for i := range m.Hardware {
		r += m.Hardware[i].DecodeRate
	}
	return r
}

// PredictWait returns the predicted time until a new request of class c starts its prefill. ok is false if no worker is
// ready, which differs from a wait of zero.
func (m *ModelCapacity) PredictWait(c spec.Class) (wait time.Duration, ok bool) {
	r := m.PrefillRate()
	if r <= 0 || m.Ready <= 0 {
		return 0, false
	}
	return time.Duration(min(float64(m.WorkAhead[c])/float64(r), maxPredictedWait.Seconds()) * float64(time.Second)), true
}

// maxPredictedWait is the longest predicted wait. A longer one would overflow a time.Duration, and makes no difference
// to a choice.
const maxPredictedWait = 24 * time.Hour

// FindModel returns the entry of that name, or nil. It does not allocate.
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
		return s.Models[lo]
	}
	return nil
}

// minKnown returns the shorter of two times; 0 is an unknown time. It is associative and commutative, and 0 is its
// identity.
func minKnown(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// LoadSeconds returns the time until a model without a ready worker is ready, in seconds: the shortest that the subtree
// offers. warm and cold are the values of times that were not measured. ok is false if no worker can load the model.
func (m *ModelCapacity) LoadSeconds(warm, cold float64) (seconds float64, ok bool) {
	known := func(millis int64, prior float64) float64 {
		if millis > 0 {
			return float64(millis) / 1000
		}
		return prior
	}
	switch {
	case m.Warm > 0 && m.Cold > 0:
		return min(known(m.WarmMillis, warm), known(m.ColdMillis, cold)), true
	case m.Warm > 0:
		return known(m.WarmMillis, warm), true
	case m.Cold > 0:
		return known(m.ColdMillis, cold), true
	}
	return 0, false
}

// Equal reports whether two summaries are equal. An empty list equals an absent one.
func (s Summary) Equal(t Summary) bool {
	return s.Path == t.Path && s.Boot == t.Boot && s.Seq == t.Seq && s.Endpoint == t.Endpoint && s.Draining == t.Draining &&
		s.unknown == t.unknown && slices.Equal(s.Acks, t.Acks) && slices.Equal(s.Demand, t.Demand) &&
		slices.Equal(s.RTTs, t.RTTs) && slices.Equal(s.Networks, t.Networks) && slices.Equal(s.Outcomes, t.Outcomes) &&
		slices.Equal(s.TenantUsages, t.TenantUsages) && s.HeldLeases == t.HeldLeases &&
		slices.EqualFunc(s.Models, t.Models, equalModels)
}

// equalModels reports whether two models are equal. Most models of two summaries are the same.
func equalModels(m, n *ModelCapacity) bool { return m == n || m.Equal(*n) }

// Equal reports whether two models are equal.
func (m ModelCapacity) Equal(n ModelCapacity) bool {
	return m.equalExceptPrefixes(&n) && slices.Equal(m.Prefixes, n.Prefixes)
}

func (m *ModelCapacity) equalExceptPrefixes(n *ModelCapacity) bool {
	x, y := m.amountFields(), n.amountFields()
	for i := range x {
		if *x[i] != *y[i] {
			return false
		}
	}
	return m.WarmMillis == n.WarmMillis && m.ColdMillis == n.ColdMillis && m.equalExceptAmounts(n)
}

// equalExceptAmounts reports whether two models differ at most in amounts and prefixes.
func (m *ModelCapacity) equalExceptAmounts(n *ModelCapacity) bool {
	return m.Name == n.Name && m.unknown == n.unknown && slices.Equal(m.Hardware, n.Hardware) && slices.EqualFunc(m.Pools, n.Pools, equalModels)
}

// ShareUnchanged replaces the models of s by those of old where they are equal, and otherwise their names, hardware
// lists and sketches: they change rarely. s must not be shared yet. It saves a parent of a thousand children a third of
// their memory.
func (s *Summary) ShareUnchanged(old *Summary) {
	if old == nil {
		return
	}
	at := 0
	for i := range s.Models {
		m := s.Models[i]
		for at < len(old.Models) && old.Models[at].Name < m.Name {
			at++
		}
		if at == len(old.Models) {
			return
		}
		if o := old.Models[at]; o.Name == m.Name {
			if m.Equal(*o) {
				s.Models[i] = o
				continue
			}
			m.Name = o.Name
			if slices.Equal(m.Hardware, o.Hardware) {
				m.Hardware = o.Hardware
			}
			if slices.Equal(m.Prefixes, o.Prefixes) {
				m.Prefixes = o.Prefixes
			}
		}
	}
}
