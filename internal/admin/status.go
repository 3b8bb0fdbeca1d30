package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
)

// The values of State fields. Those of regions and zones describe the reports received by this node, not the health of the
// region. Earlier releases and scripts read the values, so they stay as they are; the commands print other words.
const (
	StateFresh       = "fresh"    // reported recently
	StateStale       = "stale"    // no recent report: shown as last reported
	StateUnreachable = "lost"     // no report for so long that no requests are sent there while other regions are available
	StateUnknown     = "unknown"  // in the spec, without any report yet
	StateReady       = "ready"    // a worker that accepts requests
	StateStarting    = "starting" // a worker that was not ready yet
	StateDraining    = "draining" // accepts no new requests
	StateUnhealthy   = "sick"     // an ejected worker
)

// NotReady is the prefix of the reason of a worker that was not ready yet, followed by the cause of its last failure.
const NotReady = "not ready: "

// Status is one node's view of the tiers below it. A global node lists every region, a gateway its own region, and a local
// instance its region with its own zone.
type Status struct {
	Node        string         `json:"node"`
	Role        string         `json:"role"` // "global", "regional" or "local"
	Version     string         `json:"version,omitempty"`
	StartedAt   time.Time      `json:"started_at"`
	Raft        *RaftStatus    `json:"raft,omitempty"` // global nodes only
	SpecVersion uint64         `json:"spec_version"`
	Stage       *StageStatus   `json:"stage,omitempty"`     // the staged spec
	SpecFile    *SpecFile      `json:"spec_file,omitempty"` // of a standalone zone, which has no versions and no plan
	PlanEpoch   uint64         `json:"plan_epoch"`
	PlanAgeMS   int64          `json:"plan_age_ms,omitempty"` // since this node applied the plan
	Basis       []Basis        `json:"basis,omitempty"`       // sources of the configuration in force
	Drains      []Drain        `json:"drains,omitempty"`
	Regions     []RegionStatus `json:"regions"`
	// Certificates are those of the node and its listeners, and the CAs that it trusts.
	Certificates []Certificate `json:"certificates,omitempty"`
	Notes        []string      `json:"notes,omitempty"` // restrictions: "no leader", "region tokyo did not answer in 1s"
}

// Certificate is the expiry of a certificate, or the first expiry in a file of CAs.
type Certificate struct {
	Name      string    `json:"name"` // the config key that sets it
	ExpiresAt time.Time `json:"expires_at"`
}

// SpecFile is the spec file of a standalone zone.
type SpecFile struct {
	Path      string    `json:"path,omitempty"` // empty: no file, the defaults are in force
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// RaftStatus is the node's view of the Raft cluster.
type RaftStatus struct {
	ID            string  `json:"id"`
	State         string  `json:"state"`  // "leader", "follower", "candidate"
	Leader        string  `json:"leader"` // empty: unknown
	Term          uint64  `json:"term"`
	Applied       uint64  `json:"applied"`
	Commit        uint64  `json:"commit"`
	Last          uint64  `json:"last"`
	LastContactMS int64   `json:"last_contact_ms"` // since the last message from the leader; 0 on the leader
	Voters        []Voter `json:"voters"`
	Clock         *Clock  `json:"clock,omitempty"` // of this node
}

// Clock compares a node's wall clock with those of the voters.
type Clock struct {
	AheadMS *int64 `json:"ahead_ms,omitempty"` // of the median of the voters' clocks, negative when behind; absent while too few are known
	Known   int    `json:"known"`              // voters with a known clock, including the node itself
	Voters  int    `json:"voters"`
	// DutiesWait reports that this node, as leader, performs no duties that depend on wall time.
	DutiesWait bool   `json:"duties_wait"`
	Text       string `json:"text"` // the same as text, with the effect
}

// Voter is one voter of the Raft cluster.
type Voter struct {
	ID            string `json:"id"`
	Addr          string `json:"addr"`
	ClockOffsetMS *int64 `json:"clock_offset_ms,omitempty"` // of its wall clock from this node's; absent while unknown
}

// RegionStatus is one region. A gateway answers the uplink query QueryStatus with it.
type RegionStatus struct {
	Name        string          `json:"name"`
	State       string          `json:"state"`
	AgeMS       int64           `json:"age_ms"` // since the newest report of a gateway
	Draining    bool            `json:"draining,omitempty"`
	SpecVersion uint64          `json:"spec_version,omitempty"` // the version that its gateway applied
	Gateways    []GatewayStatus `json:"gateways"`
	Models      []ModelStatus   `json:"models"`
	Zones       []ZoneStatus    `json:"zones"`
	Place       *Place          `json:"place,omitempty"` // from the spec; at a global node
	Note        string          `json:"note,omitempty"`  // "did not answer within 1s: shown as last reported"
}

// GatewayStatus is one instance of a regional tier.
type GatewayStatus struct {
	Name     string `json:"name"`
	URL      string `json:"url,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // address for spilled requests of peers
	State    string `json:"state"`
	AgeMS    int64  `json:"age_ms"`
	InFlight int64  `json:"in_flight"` // requests that it relays now
	// Traffic is absent in answers of other nodes than the gateway itself and the global nodes, and of earlier releases.
	Traffic *TrafficCounts `json:"traffic,omitempty"`
}

// Place is where a region is.
type Place struct {
	City string  `json:"city,omitempty"`
	Lat  float64 `json:"lat"` // degrees, north is positive
	Lon  float64 `json:"lon"` // degrees, east is positive
}

// ZoneStatus is one zone as reported by one of its local instances. A local instance answers the uplink query QueryStatus with
// it.
type ZoneStatus struct {
	Name     string         `json:"name"`
	Instance string         `json:"instance"`
	Endpoint string         `json:"endpoint,omitempty"`
	State    string         `json:"state"`
	AgeMS    int64          `json:"age_ms"`
	Draining bool           `json:"draining,omitempty"`
	Workers  []WorkerStatus `json:"workers"`
	Models   []ModelStatus  `json:"models"`
	Traffic  *TrafficCounts `json:"traffic,omitempty"` // of the instance
	Note     string         `json:"note,omitempty"`
}

// ModelStatus is the capacity of a region or zone for one model.
type ModelStatus struct {
	Name        string  `json:"name"`
	Ready       int64   `json:"ready"`
	Total       int64   `json:"total"`
	Running     int64   `json:"running"`
	Queued      int64   `json:"queued"`
	PrefillRate int64   `json:"prefill_tokens_per_second"`
	DecodeRate  int64   `json:"decode_tokens_per_second"`
	Backlog     int64   `json:"backlog_tokens"`
	KVFree      int64   `json:"kv_free_tokens"`
	KVTotal     int64   `json:"kv_total_tokens"`
	WaitSeconds float64 `json:"wait_seconds"` // predicted queue wait of class standard
	Headroom    int64   `json:"headroom_tokens_per_second"`
	Warm        int64   `json:"warm,omitempty"` // workers that are asleep, or can load it within a moment
	Cold        int64   `json:"cold,omitempty"` // workers that can load it
}

// WorkerStatus is one worker as reported by its local instance.
type WorkerStatus struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	GPU    string   `json:"gpu,omitempty"`
	Source string   `json:"source,omitempty"` // source of its address: static, file, dns or registration
	Engine string   `json:"engine,omitempty"` // type of the engine; auto while unknown
	Models []string `json:"models,omitempty"`
	State  string   `json:"state"`
	Reason string   `json:"reason,omitempty"` // why it is not ready
	// LastError is the error of the last failed probe or model list, Attempts the number of consecutive failures, and Since
	// the time of the first of them. They are absent after a success.
	LastError string    `json:"last_error,omitempty"`
	Attempts  int       `json:"attempts,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Running   int64     `json:"running"`   // from its metrics
	Waiting   int64     `json:"waiting"`   // from its metrics
	InFlight  int64     `json:"in_flight"` // from the in-flight ledger of the local instance
	KVFree    int64     `json:"kv_free_tokens"`
	KVTotal   int64     `json:"kv_total_tokens"`
	Backlog   int64     `json:"backlog_tokens"`
	// ModelStates are its models that accept no requests now: cold, loading or unloading.
	ModelStates map[string]string `json:"model_states,omitempty"`
	// KVOvercommit is the share of the KV cache that may be reserved; it falls when the worker preempts.
	KVOvercommit float64 `json:"kv_overcommit,omitempty"`
	// Prefix reports whether the contents of its cache are known from events or estimated; empty without events.
	Prefix      string  `json:"prefix_index,omitempty"`
	PrefillRate float64 `json:"prefill_tokens_per_second"`
	DecodeRate  float64 `json:"decode_tokens_per_second"`
	ScrapeAgeMS int64   `json:"scrape_age_ms"`
}

// Basis is one part of the configuration in force at a node, with its source and age.
type Basis struct {
	What string `json:"what"` // "spec", "plan", "directive" or "uplink"
	From string `json:"from"` // "raft", "parent", "disk", "config", "file", "defaults" or "none"
	// AgeMS is the time since it was received from the source, or written there; -1: unknown or not applicable.
	AgeMS int64 `json:"age_ms"`
	// Detail is text: versions, and the effect.
	Detail string `json:"detail,omitempty"`
}

// NewBasis returns a Basis of something received or written at a time. The zero time means an unknown age.
func NewBasis(what, from string, at time.Time, detail string) Basis {
	b := Basis{What: what, From: from, AgeMS: -1, Detail: detail}
	if !at.IsZero() {
		b.AgeMS = max(time.Since(at).Milliseconds(), 0)
	}
	return b
}

// String returns a line such as "directive from disk, 3m0s old: spec v3, plan 7".
func (b Basis) String() string {
	s := b.What + " from " + b.From
	if b.AgeMS >= 0 {
		s += fmt.Sprintf(", %v old", (time.Duration(b.AgeMS) * time.Millisecond).Round(100*time.Millisecond))
	}
	if b.Detail != "" {
		s += ": " + b.Detail
	}
	return s
}

// writeBasis writes a line for each part of the configuration in force.
func writeBasis(w io.Writer, basis func() []Basis) {
	if basis == nil {
		return
	}
	for _, b := range basis() {
		fmt.Fprintln(w, b)
	}
}

const pathUplinks = "/v1/uplinks"

// UplinksAnswer describes a node's uplink sessions: to the tier above it, and with the children below.
type UplinksAnswer struct {
	Node     string          `json:"node"`
	Parents  []UplinkSession `json:"parents"`
	Children []UplinkSession `json:"children"`
	// GapMS is the minimum time between two reports that the node requests of its children; 0: none.
	GapMS int64 `json:"gap_ms"`
	// Refused counts the sessions of children that this node refused or closed, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// UplinkRefused is the State of a child whose last session was refused within the last ten minutes. SinceMS is the time
// since then.
const UplinkRefused = "refused"

// UplinkSession is one session, with the counters of this end.
type UplinkSession struct {
	Peer        string  `json:"peer"` // identity in the peer's certificate; empty for a parent that was not reached yet
	Path        string  `json:"path,omitempty"`
	Address     string  `json:"address"`
	State       string  `json:"state"` // "connected", "down", or of a child "refused"
	Error       string  `json:"error,omitempty"`
	Version     uint32  `json:"version,omitempty"` // negotiated protocol version
	SinceMS     int64   `json:"since_ms"`          // since the last change of State
	AgeMS       int64   `json:"age_ms"`            // since the last acknowledgement of a parent, or report of a child; -1: none yet
	RTTMS       float64 `json:"rtt_ms"`
	Loss        float64 `json:"loss"` // share of the packets sent by this end that were lost
	GapMS       int64   `json:"gap_ms,omitempty"`
	BytesIn     uint64  `json:"bytes_in"`
	BytesOut    uint64  `json:"bytes_out"`
	PacketsSent uint64  `json:"packets_sent"`
	PacketsLost uint64  `json:"packets_lost"`
	Deltas      uint64  `json:"deltas"`
	Snapshots   uint64  `json:"snapshots"`
	Directives  uint64  `json:"directives"`
	// Generation and Index are those of the parent's last directive, or of the directive in force at a child; both 0: unknown.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	// Ignored is why the child ignores the parent's directives: "older_index", "older_generation" or "implausible"; empty if
	// it does not.
	Ignored string `json:"ignored,omitempty"`
	Passed  uint64 `json:"passed"` // discarded messages: out of date, or above the rate that a child may send
}

// GetUplinks returns the sessions of a node.
func (c *Client) GetUplinks(ctx context.Context) (*UplinksAnswer, error) {
	return callNode[UplinksAnswer](ctx, c, http.MethodGet, pathUplinks, nil)
}

const pathQueue = "/v1/queue"

// QueueAnswer contains the queues of one local instance by model.
type QueueAnswer struct {
	Node   string       `json:"node"` // region/zone/instance
	Models []QueueModel `json:"models"`
}

// QueueModel is one model's queue.
type QueueModel struct {
	Model           string       `json:"model"`
	Waiting         int          `json:"waiting"`
	MaxWaiting      int          `json:"max_waiting"`
	Bytes           int64        `json:"bytes"` // of the waiting requests' bodies
	MaxBytes        int64        `json:"max_bytes"`
	DrainRate       float64      `json:"drain_tokens_per_second"` // prompt tokens dispatched per second while requests waited
	Saturation      float64      `json:"saturation"`              // 1: full, or a class waits as long as its target
	ShedProbability float64      `json:"shed_probability"`        // probability that a new batch request is rejected
	Panic           bool         `json:"panic"`                   // so few workers are healthy that ejected ones are used too
	Classes         []QueueClass `json:"classes"`                 // the most urgent first
}

// QueueClass is one class of a QueueModel.
type QueueClass struct {
	Class       string            `json:"class"`
	Weight      float64           `json:"weight"` // raised by the age of the oldest request
	Waiting     int               `json:"waiting"`
	Running     int               `json:"running"`
	Tokens      int64             `json:"tokens"` // waiting prompt tokens
	Bytes       int64             `json:"bytes"`
	OldestMS    int64             `json:"oldest_ms"`
	WaitMS      int64             `json:"wait_ms"` // predicted for a new request; -1 before the first dispatch from the queue
	Passed      uint64            `json:"passed"`  // dispatched without waiting, since the start
	Taken       uint64            `json:"taken"`   // dispatched after waiting
	Gone        uint64            `json:"gone"`    // left the queue: the client disconnected, the deadline passed, or evicted
	Evicted     uint64            `json:"evicted"` // evicted for a more urgent request, or one of a tenant with fewer waiting
	Refused     map[string]uint64 `json:"refused,omitempty"`
	Tenants     []QueueTenant     `json:"tenants"`
	TenantCount int               `json:"tenant_count"` // including those not listed
}

// QueueTenant is one tenant of a QueueClass.
type QueueTenant struct {
	Tenant       string  `json:"tenant"`
	Waiting      int     `json:"waiting"`
	Running      int     `json:"running"`
	Tokens       int64   `json:"tokens"`
	Bytes        int64   `json:"bytes"`
	AheadSeconds float64 `json:"ahead_gpu_seconds"` // GPU time that it got more than the tenant that got the least
	NextDueMS    int64   `json:"next_due_ms"`       // negative: overdue
}

// GetQueue returns the queues of a local instance.
func (c *Client) GetQueue(ctx context.Context) (*QueueAnswer, error) {
	return callNode[QueueAnswer](ctx, c, http.MethodGet, pathQueue, nil)
}

// The kinds of queries that a parent sends to a child over the uplink.
const (
	QueryStatus  = "status"  // empty payload; the answer is a RegionStatus or a ZoneStatus
	QueryTenants = "tenants" // empty payload; the answer is the TenantsAnswer of a gateway
	QueryExplain = "explain" // the payload is an ExplainQuery; the answer is []explain.Explanation, nearest tier first
)

// ExplainQuery describes a hypothetical request whose routing decisions are explained.
type ExplainQuery struct {
	From         string              `json:"from"`    // the client's address, or a prefix
	Service      string              `json:"service"` // empty: the only service, or the first that serves the model
	Model        string              `json:"model"`   // model or alias
	Tenant       string              `json:"tenant,omitempty"`
	Class        string              `json:"class,omitempty"`
	Session      string              `json:"session,omitempty"` // session of the request; empty: none
	Target       string              `json:"target,omitempty"`  // required target of an alias; empty: none
	Headers      map[string][]string `json:"headers,omitempty"` // canonical headers of the request, for conditions of targets
	PromptTokens int64               `json:"prompt_tokens,omitempty"`
	MaxTokens    int64               `json:"max_tokens,omitempty"`
}

// ExplainAnswer contains one explanation for each decision, in the order of a request's path.
type ExplainAnswer struct {
	Records []explain.Explanation `json:"records"`
}
