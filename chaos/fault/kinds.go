package fault

import "slices"

// Faults of links. They add up when several injure one link.
const (
	LinkDelay     Kind = "link_delay"
	LinkJitter    Kind = "link_jitter"
	LinkLoss      Kind = "link_loss"
	LinkDuplicate Kind = "link_duplicate"
	LinkReorder   Kind = "link_reorder"
	LinkRate      Kind = "link_rate"
	LinkPartition Kind = "link_partition"
	LinkReset     Kind = "link_reset"
	LinkBlackhole Kind = "link_blackhole"
	LinkHalfOpen  Kind = "link_half_open"
	// Partition disconnects a region, as in chaos/sim.
	Partition Kind = "partition"
)

// Faults of processes.
const (
	ProcessKill  Kind = "process_kill"
	ProcessPause Kind = "process_pause"
	ProcessSlow  Kind = "process_slow"
	// WorkerDead, LocalDead, ZoneDead, GatewayDead, RegionDead, LeaderDead and GlobalDead kill the processes of a scope,
	// as in chaos/sim.
	WorkerDead  Kind = "worker_dead"
	LocalDead   Kind = "local_dead"
	ZoneDead    Kind = "zone_dead"
	GatewayDead Kind = "gateway_dead"
	RegionDead  Kind = "region_dead"
	LeaderDead  Kind = "leader_dead"
	GlobalDead  Kind = "global_dead"
)

// Faults of simulated workers, which hold them on their chaos pages. A worker has one at a time.
const (
	WorkerStalled    Kind = "worker_stalled"
	WorkerSlow       Kind = "worker_slow"
	WorkerRefuse     Kind = "worker_refuse"
	WorkerHang       Kind = "worker_hang"
	WorkerTrickle    Kind = "worker_trickle"
	WorkerWrong      Kind = "worker_wrong"
	WorkerLieMetrics Kind = "worker_lie_metrics"
	WorkerLieHealth  Kind = "worker_lie_health"
	WorkerOOM        Kind = "worker_oom"
	WorkerFail       Kind = "worker_fail"
	WorkerDieStream  Kind = "worker_die_midstream"
	WorkerPoison     Kind = "worker_poison"
	WorkerLeak       Kind = "worker_leak"
	WorkerColdStart  Kind = "worker_cold_start"
	WorkerKeyRevoked Kind = "worker_key_revoked"
	WorkerSpot       Kind = "worker_spot_notice"
	WorkerThermal    Kind = "worker_thermal"
	WorkerLoseEvents Kind = "worker_lose_events"
)

// Scope is a field of Target.
type Scope string

// The scopes, named as the fields in JSON.
const (
	ScopeNode   Scope = "node"
	ScopeLink   Scope = "link"
	ScopeRegion Scope = "region"
	ScopeZone   Scope = "zone"
	ScopeWorker Scope = "worker"
)

// Param is a parameter of a kind.
type Param struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	// Unit is "duration" (as in 80ms), "share" (0 to 1), "factor", "count", "bit/s", "bytes", "text", or the values of a
	// choice with "|" between them.
	Unit string `json:"unit"`
	// Default is used when the parameter is missing; empty: it is required, or for a text, empty.
	Default string `json:"default,omitempty"`
	// Min and Max bound a number or a duration, in the unit's text form.
	Min      string `json:"min,omitempty"`
	Max      string `json:"max,omitempty"`
	Required bool   `json:"required,omitempty"`
}

// Info describes a kind.
type Info struct {
	Kind    Kind    `json:"kind"`
	Summary string  `json:"summary"`
	Params  []Param `json:"params,omitempty"`
	// Scopes lists the fields of Target that it takes; exactly one must be set. Empty: it has no target.
	Scopes []Scope `json:"scopes,omitempty"`
	// CanVerify reports whether Verify can tell that the fault is in force, not only that it is cleared.
	CanVerify bool `json:"can_verify"`
	// Needs names what the machine must have, such as "root" or "strace"; empty: nothing.
	Needs string `json:"needs,omitempty"`
}

// Kinds lists every kind that Open's Injector accepts.
func Kinds() []Info { return slices.Clone(catalog) }

// FindKind returns the description of a kind.
func FindKind(k Kind) (Info, bool) {
	i := slices.IndexFunc(catalog, func(in Info) bool { return in.Kind == k })
	if i < 0 {
		return Info{}, false
	}
	return catalog[i], true
}

// Directions of a link fault.
const (
	DirectionBoth = "both"
	// DirectionForward is from the node that dialed to the one that listens, DirectionBack the other one.
	DirectionForward = "forward"
	DirectionBack    = "back"
	// DirectionIn and DirectionOut are toward and from the target, where that is a node, zone or region.
	DirectionIn  = "in"
	DirectionOut = "out"
)

var (
	linkScopes    = []Scope{ScopeLink, ScopeNode, ScopeRegion, ScopeZone, ScopeWorker}
	processScopes = []Scope{ScopeNode, ScopeRegion, ScopeZone, ScopeWorker}
	workerScopes  = []Scope{ScopeWorker, ScopeZone, ScopeRegion}
)

// linkParams are the parameters of every link fault, after its own.
func linkParams(own ...Param) []Param {
	return append(own,
		Param{Name: "direction", Summary: "which bytes are affected: by who dialed (forward, back), or seen from the target (in, out)", Unit: "both|forward|back|in|out", Default: DirectionBoth},
		Param{Name: "class", Summary: "only links of these classes, with + between them: raft, uplink, peer, http, worker", Unit: "text"},
		Param{Name: "from", Summary: "only links to this node, zone, region or \"global\", which is all global nodes", Unit: "text"})
}

func shareParam(name, summary, unset string) Param {
	return Param{Name: name, Summary: summary, Unit: "share", Default: unset, Required: unset == "", Min: "0", Max: "1"}
}

func durationParam(name, summary, unset, low, high string) Param {
	return Param{Name: name, Summary: summary, Unit: "duration", Default: unset, Required: unset == "", Min: low, Max: high}
}

var restartParam = Param{Name: "restart", Summary: "whether the process is started again when the fault ends", Unit: "yes|no", Default: "yes"}

var catalog = []Info{
	{LinkDelay, "adds a one-way delay", linkParams(durationParam("delay", "added to each direction", "", "1ms", "10s")), linkScopes, true, ""},
	{LinkJitter, "adds a random delay to each packet; order is kept", linkParams(durationParam("jitter", "the largest added delay; uniform from 0", "", "1ms", "10s")), linkScopes, true, ""},
	{LinkLoss, "loses datagrams; on TCP, where the kernel would send again, a lost segment stalls the connection", linkParams(shareParam("share", "of datagrams, or of segments of 1460 bytes", ""), durationParam("stall", "how long a lost TCP segment stalls its connection: a retransmission time-out", "200ms", "1ms", "10s")), linkScopes, true, ""},
	{LinkDuplicate, "sends datagrams twice; TCP is not affected", linkParams(shareParam("share", "of datagrams", "")), linkScopes, true, ""},
	{LinkReorder, "delays some datagrams past those behind them; TCP is not affected", linkParams(shareParam("share", "of datagrams", ""), durationParam("delay", "added to those", "10ms", "1ms", "10s")), linkScopes, true, ""},
	{LinkRate, "limits the rate, with a queue of 200 ms that then drops datagrams and blocks TCP", linkParams(Param{Name: "rate", Summary: "of each direction of each link", Unit: "bit/s", Min: "1000", Max: "10000000000", Required: true}), linkScopes, true, ""},
	{LinkPartition, "carries nothing; connections stay open and new ones get no answer, as when packets are dropped", linkParams(), linkScopes, true, ""},
	{Partition, "disconnects a region, or with direction only one way: as link_partition of its border", linkParams(), []Scope{ScopeRegion}, true, ""},
	{LinkReset, "resets the open TCP connections once and refuses new ones; datagrams are not affected", linkParams(), linkScopes, true, ""},
	{LinkBlackhole, "accepts connections and reads them, and delivers nothing: the sender gets its acknowledgements", linkParams(), linkScopes, true, ""},
	{LinkHalfOpen, "closes TCP connections toward the listener and keeps the dialer's side open, without telling it; new ones too", linkParams(), linkScopes, true, ""},

	{ProcessKill, "kills the process with SIGKILL, and starts it again when the fault ends", []Param{restartParam}, processScopes, true, ""},
	{ProcessPause, "stops the process with SIGSTOP until the fault ends", nil, processScopes, true, ""},
	{ProcessSlow, "stops and continues the process in turn, so that it gets one part of its time", []Param{{Name: "factor", Summary: "how many times slower it runs", Unit: "factor", Default: "4", Min: "1.1", Max: "50"}}, processScopes, true, ""},
	{WorkerDead, "kills simulated workers", []Param{restartParam}, []Scope{ScopeWorker}, true, ""},
	{LocalDead, "kills a local instance", []Param{restartParam}, []Scope{ScopeNode}, true, ""},
	{ZoneDead, "kills the local instances and the workers of a zone", []Param{restartParam}, []Scope{ScopeZone}, true, ""},
	{GatewayDead, "kills a gateway, or all gateways of a region", []Param{restartParam}, []Scope{ScopeNode, ScopeRegion}, true, ""},
	{RegionDead, "kills all processes of a region, with the global nodes that are there", []Param{restartParam}, []Scope{ScopeRegion}, true, ""},
	{LeaderDead, "kills the global node that leads", []Param{restartParam}, nil, true, ""},
	{GlobalDead, "kills all global nodes", []Param{restartParam}, nil, true, ""},

	{WorkerStalled, "accepts requests and emits nothing; health and metrics pages answer as before", nil, workerScopes, true, ""},
	{WorkerSlow, "multiplies the time of every step", []Param{{Name: "factor", Summary: "of the step time", Unit: "factor", Default: "4", Min: "0.01", Max: "1000"}}, workerScopes, true, ""},
	{WorkerThermal, "slows the workers of one GPU type", []Param{{Name: "factor", Summary: "of the step time", Unit: "factor", Default: "1.25", Min: "0.01", Max: "1000"}, {Name: "gpu", Summary: "the GPU type, such as H100", Unit: "text", Required: true}}, workerScopes, true, ""},
	{WorkerFail, "answers a share of requests with an error", []Param{shareParam("share", "of requests", "1"), {Name: "status", Summary: "the HTTP status", Unit: "count", Default: "500", Min: "400", Max: "599"}}, workerScopes, true, ""},
	{WorkerOOM, "fails running and new requests with a CUDA out-of-memory error", nil, workerScopes, true, ""},
	{WorkerLeak, "leaks memory with each request, and restarts when it has run out", []Param{{Name: "requests", Summary: "until it runs out", Unit: "count", Default: "100", Min: "1", Max: "1000000"}, durationParam("restart", "how long a restart takes", "10s", "1ms", "10m")}, workerScopes, true, ""},
	{WorkerDieStream, "cuts the connection of a share of streams after some tokens", []Param{shareParam("share", "of requests", "1"), {Name: "after_tokens", Summary: "tokens before the cut", Unit: "count", Default: "1", Min: "1", Max: "1000000"}}, workerScopes, true, ""},
}
