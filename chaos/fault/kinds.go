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

// Faults of clocks: the wall clock of a process that has fleet.ClockEnv, as the fleet's have. The system's is not changed.
const (
	ClockJump   Kind = "clock_jump"
	ClockDrift  Kind = "clock_drift"
	ClockFreeze Kind = "clock_freeze"
)

// Faults of certificates.
const (
	CertExpired   Kind = "cert_expired"
	CertWrongCA   Kind = "cert_wrong_ca"
	CertWrongRole Kind = "cert_wrong_role"
	CertRotate    Kind = "cert_rotate"
)

// Faults of disks: of the files in a node's state directory.
const (
	DiskFull            Kind = "disk_full"
	DiskEIO             Kind = "disk_eio"
	DiskSlow            Kind = "disk_slow"
	DiskDamagedSnapshot Kind = "disk_damaged_snapshot"
	DiskTornPlan        Kind = "disk_torn_plan"
	DiskDeletedDir      Kind = "disk_deleted_dir"
	ProcessKillAtSync   Kind = "process_kill_at_sync"
)

// Faults of input, sent to public listeners.
const (
	InputDNSGarbage  Kind = "input_dns_garbage"
	InputDNSFlood    Kind = "input_dns_flood"
	InputSlowClients Kind = "input_slow_clients"
	InputHugeBodies  Kind = "input_huge_bodies"
)

// Mistakes of operators.
const (
	// Drain drains a region, zone or worker, as in chaos/sim.
	Drain               Kind = "drain"
	OperatorNonsense    Kind = "operator_nonsense_spec"
	OperatorTwoAtOnce   Kind = "operator_two_at_once"
	OperatorDrainAll    Kind = "operator_drain_all"
	OperatorOldArchive  Kind = "operator_old_archive"
	OperatorRemoveVoter Kind = "operator_remove_voter"
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
	nodeScopes    = []Scope{ScopeNode, ScopeRegion, ScopeZone}
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

var restartNodeParam = Param{Name: "restart", Summary: "whether the node is restarted, at both ends of the fault, so that it has to start with the files", Unit: "yes|no", Default: "no"}

// rateParam bounds a flood: more than a small machine sends.
var rateParam = Param{Name: "rate", Summary: "messages a second to each name server", Unit: "factor", Default: "200", Min: "1", Max: "20000"}

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
	{WorkerRefuse, "resets every connection; running streams continue", nil, workerScopes, true, ""},
	{WorkerHang, "answers requests with their headers and nothing else", nil, workerScopes, true, ""},
	{WorkerTrickle, "sends one token of each stream in an interval", []Param{durationParam("interval", "between two tokens", "1s", "1ms", "1m")}, workerScopes, true, ""},
	{WorkerWrong, "generates other text than the model, as with wrong weights", nil, workerScopes, true, ""},
	{WorkerLieMetrics, "reports an idle engine, also when it is busy", nil, workerScopes, true, ""},
	{WorkerLieHealth, "reports the contrary of its health: \"healthy\" fails every request, \"unhealthy\" serves them", []Param{{Name: "claim", Summary: "what it reports", Unit: "healthy|unhealthy", Default: "healthy"}}, workerScopes, true, ""},
	{WorkerPoison, "ends its process when a request contains a text", []Param{{Name: "text", Summary: "in the body of a request", Unit: "text", Required: true}, durationParam("restart", "how long a restart takes", "10s", "1ms", "10m")}, workerScopes, true, ""},
	{WorkerColdStart, "ends its process, which listens again after its weights are loaded, with an empty cache", []Param{durationParam("restart", "how long the start takes", "10s", "1ms", "10m")}, workerScopes, true, ""},
	{WorkerKeyRevoked, "accepts no API key, except for its health page", nil, workerScopes, true, ""},
	{WorkerLoseEvents, "loses batches of its cache events, also for replay", []Param{shareParam("share", "of batches", "1")}, workerScopes, true, ""},
	{WorkerSpot, "gets SIGTERM at once and SIGKILL after the notice, and is started again when the fault ends", []Param{durationParam("notice", "between the two", "30s", "100ms", "10m")}, workerScopes, true, ""},
	{WorkerDieStream, "cuts the connection of a share of streams after some tokens", []Param{shareParam("share", "of requests", "1"), {Name: "after_tokens", Summary: "tokens before the cut", Unit: "count", Default: "1", Min: "1", Max: "1000000"}}, workerScopes, true, ""},

	{ClockJump, "sets the wall clock of global nodes ahead or back", []Param{durationParam("jump", "ahead, or back if negative", "", "-24h", "24h")}, []Scope{ScopeNode, ScopeRegion}, true, ""},
	{ClockDrift, "lets the wall clock of global nodes run too fast or too slow", []Param{{Name: "rate", Summary: "gained for each second; negative: lost", Unit: "factor", Min: "-0.5", Max: "0.5", Required: true}}, []Scope{ScopeNode, ScopeRegion}, true, ""},
	{ClockFreeze, "stops the wall clock of global nodes", nil, []Scope{ScopeNode, ScopeRegion}, true, ""},

	{CertExpired, "replaces certificates by ones that expire soon, while they are in use", []Param{durationParam("ttl", "until it expires; negative: it has expired already", "3s", "-30m", "10m"), restartNodeParam}, nodeScopes, true, ""},
	{CertWrongCA, "replaces certificates by ones of another authority", []Param{restartNodeParam}, nodeScopes, true, ""},
	{CertWrongRole, "replaces certificates by ones of the operator's role", []Param{restartNodeParam}, nodeScopes, true, ""},
	{CertRotate, "replaces certificates by new valid ones, and by the earlier ones when the fault ends", []Param{restartNodeParam}, nodeScopes, true, ""},

	{DiskFull, "fails writes to the node's files with ENOSPC", nil, nodeScopes, true, "strace"},
	{DiskEIO, "fails syncs and writes of the node's files with EIO", nil, nodeScopes, true, "strace"},
	{DiskSlow, "delays each sync and write of the node's files", []Param{durationParam("delay", "of each call", "80ms", "1ms", "10s")}, nodeScopes, true, "strace"},
	{ProcessKillAtSync, "kills the process at its k-th sync of its files, and starts it again when the fault ends", []Param{{Name: "k", Summary: "which sync, from 1", Unit: "count", Default: "1", Min: "1", Max: "10000"}}, nodeScopes, true, "strace"},
	{DiskDamagedSnapshot, "restarts a global node with one bit of its newest snapshot changed", nil, []Scope{ScopeNode}, true, ""},
	{DiskTornPlan, "restarts the node with its persisted plan or directive torn in the middle", nil, nodeScopes, true, ""},
	{DiskDeletedDir, "takes the node's state directory away; open files stay open", []Param{restartNodeParam}, nodeScopes, true, ""},

	{InputDNSGarbage, "sends malformed DNS messages to name servers", []Param{rateParam}, nodeScopes, true, ""},
	{InputDNSFlood, "sends DNS queries for names that do not exist", []Param{rateParam}, nodeScopes, true, ""},
	{InputSlowClients, "opens connections to gateways and sends request heads byte by byte", []Param{{Name: "count", Summary: "connections of each gateway", Unit: "count", Default: "50", Min: "1", Max: "2000"}, durationParam("interval", "between two bytes", "500ms", "10ms", "1m")}, nodeScopes, true, ""},
	{InputHugeBodies, "sends requests with huge bodies to gateways", []Param{{Name: "count", Summary: "concurrent requests of each gateway", Unit: "count", Default: "4", Min: "1", Max: "100"}, {Name: "size", Summary: "of a body", Unit: "bytes", Default: "67108864", Min: "1", Max: "1073741824"}}, nodeScopes, true, ""},

	{Drain, "drains a region, a zone or workers through the admin API", []Param{durationParam("over", "in which traffic leaves; 0s: at once", "0s", "0s", "1h"), {Name: "force", Summary: "whether it drains even if too little remains", Unit: "yes|no", Default: "no"}}, workerScopes, true, ""},
	{OperatorNonsense, "applies a spec that is nonsense; it has to be refused", nil, nil, true, ""},
	{OperatorTwoAtOnce, "lets two operators replace one version of the spec at the same time; one has to be refused", nil, nil, true, ""},
	{OperatorDrainAll, "drains one region after the other, the last too; that has to be refused", nil, nil, true, ""},
	{OperatorOldArchive, "changes the spec and then restores an archive of before", nil, nil, true, ""},
	{OperatorRemoveVoter, "removes a voter from the Raft cluster, and adds it again when the fault ends", nil, []Scope{ScopeNode}, true, ""},
}
