package admin

import "time"

// The words that State fields hold. A state is about what this node knows, so "stale" is not "down".
const (
	StateFresh    = "fresh"    // heard of within the last moments
	StateStale    = "stale"    // not heard of lately: shown as last known
	StateLost     = "lost"     // not heard of for so long that nothing is sent there while others are well
	StateUnknown  = "unknown"  // declared in the spec and never heard of
	StateReady    = "ready"    // a worker that takes requests
	StateStarting = "starting" // a worker that has not answered yet
	StateDraining = "draining" // takes nothing new
	StateSick     = "sick"     // a worker that is ejected
)

// NotReady begins the reason of a worker that has not been ready yet; what follows is the cause of its last failure.
const NotReady = "not ready: "

// Status is one node's view of what it stands over. A global node lists every region, a gateway its own region, and a
// local its own region with its own zone.
type Status struct {
	Node        string         `json:"node"`
	Role        string         `json:"role"` // "global", "regional" or "local"
	Version     string         `json:"version,omitempty"`
	StartedAt   time.Time      `json:"started_at"`
	Raft        *RaftStatus    `json:"raft,omitempty"` // global nodes only
	SpecVersion uint64         `json:"spec_version"`
	Stage       *StageStatus   `json:"stage,omitempty"`     // a spec on trial
	SpecFile    *SpecFile      `json:"spec_file,omitempty"` // of a zone that stands alone; it has no versions and no plan
	PlanEpoch   uint64         `json:"plan_epoch"`
	PlanAgeMS   int64          `json:"plan_age_ms,omitempty"` // since this node took the plan into use
	Basis       []Basis        `json:"basis,omitempty"`       // what the node runs from and how old that is
	Drains      []Drain        `json:"drains,omitempty"`
	Regions     []RegionStatus `json:"regions"`
	// Certificates are the node's own and those of its listeners, with the authorities that it checks others against.
	Certificates []Certificate `json:"certificates,omitempty"`
	Notes        []string      `json:"notes,omitempty"` // what qualifies the rest: "no leader", "region tokyo did not answer in 1s"
}

// Certificate is when a certificate ends, or the first of a file of authorities.
type Certificate struct {
	Name      string    `json:"name"` // the configuration key that sets it
	ExpiresAt time.Time `json:"expires_at"`
}

// SpecFile is what a zone that stands alone goes by.
type SpecFile struct {
	Path      string    `json:"path,omitempty"` // empty: none is given, and defaults hold
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// RaftStatus is the node's own view of the consensus group.
type RaftStatus struct {
	ID            string  `json:"id"`
	State         string  `json:"state"`  // "leader", "follower", "candidate"
	Leader        string  `json:"leader"` // empty when none is known
	Term          uint64  `json:"term"`
	Applied       uint64  `json:"applied"`
	Commit        uint64  `json:"commit"`
	Last          uint64  `json:"last"`
	LastContactMS int64   `json:"last_contact_ms"` // since the leader was heard; 0 on the leader
	Voters        []Voter `json:"voters"`
}

// Voter is one member of the consensus group.
type Voter struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
}

// RegionStatus is one region. A gateway answers the uplink question "status" with it.
type RegionStatus struct {
	Name        string          `json:"name"`
	State       string          `json:"state"`
	AgeMS       int64           `json:"age_ms"` // since the last statement of its freshest gateway
	Draining    bool            `json:"draining,omitempty"`
	SpecVersion uint64          `json:"spec_version,omitempty"` // the version its gateway has adopted
	Gateways    []GatewayStatus `json:"gateways"`
	Models      []ModelStatus   `json:"models"`
	Zones       []ZoneStatus    `json:"zones"`
	Note        string          `json:"note,omitempty"` // "did not answer within 1s: shown as last reported"
}

// GatewayStatus is one instance of a regional tier.
type GatewayStatus struct {
	Name     string `json:"name"`
	URL      string `json:"url,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // where peers forward to
	State    string `json:"state"`
	AgeMS    int64  `json:"age_ms"`
	InFlight int64  `json:"in_flight"` // requests it is relaying
}

// ZoneStatus is one zone as one of its local instances sees it. A local answers the uplink question "status" with it.
type ZoneStatus struct {
	Name     string         `json:"name"`
	Instance string         `json:"instance"`
	Endpoint string         `json:"endpoint,omitempty"`
	State    string         `json:"state"`
	AgeMS    int64          `json:"age_ms"`
	Draining bool           `json:"draining,omitempty"`
	Workers  []WorkerStatus `json:"workers"`
	Models   []ModelStatus  `json:"models"`
	Note     string         `json:"note,omitempty"`
}

// ModelStatus is the capacity of a subtree for one model.
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
	Warm        int64   `json:"warm,omitempty"` // workers that are asleep or could load it in a moment
	Cold        int64   `json:"cold,omitempty"` // workers that could load it
}

// WorkerStatus is one inference server as its local instance knows it.
type WorkerStatus struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	GPU    string   `json:"gpu,omitempty"`
	Source string   `json:"source,omitempty"` // what it was found by: static, file, dns or registration
	Engine string   `json:"engine,omitempty"` // the dialect it speaks; auto while that is not known
	Models []string `json:"models,omitempty"`
	State  string   `json:"state"`
	Reason string   `json:"reason,omitempty"` // why it is not ready
	// LastError is why the last probe or list of models failed, Attempts how many have failed in a row, and Since when the
	// first of them did. They are absent once one succeeds.
	LastError string    `json:"last_error,omitempty"`
	Attempts  int       `json:"attempts,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Running   int64     `json:"running"`   // by its own metrics
	Waiting   int64     `json:"waiting"`   // by its own metrics
	InFlight  int64     `json:"in_flight"` // by our ledger
	KVFree    int64     `json:"kv_free_tokens"`
	KVTotal   int64     `json:"kv_total_tokens"`
	Backlog   int64     `json:"backlog_tokens"`
	// ModelStates are the models that it has, or could load, and that take no requests now: cold, loading or unloading.
	ModelStates map[string]string `json:"model_states,omitempty"`
	// KVOvercommit is the factor of the KV cache that may be promised now; it falls when the worker preempts.
	KVOvercommit float64 `json:"kv_overcommit,omitempty"`
	// Prefix says whether what the worker has cached is known by its events or guessed; empty where no events are asked for.
	Prefix      string  `json:"prefix_index,omitempty"`
	PrefillRate float64 `json:"prefill_tokens_per_second"`
	DecodeRate  float64 `json:"decode_tokens_per_second"`
	ScrapeAgeMS int64   `json:"scrape_age_ms"`
}
