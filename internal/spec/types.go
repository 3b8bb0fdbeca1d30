package spec

import (
	"net/netip"
	"time"
)

// Spec is the operator's declared state. It is replicated by Raft and never edited in place: a change is a whole new
// Spec, compared-and-swapped on the version of the one it was based on.
type Spec struct {
	// Zone is the DNS zone that Spillway is authoritative for, such as "api.example.": services are names at or below it.
	Zone Zone `yaml:"zone"`
	// Services are the DNS names that clients use.
	Services []Service `yaml:"services"`
	// Regions are the places that serve, each with the gateways that clients reach.
	Regions []Region `yaml:"regions"`
	// Models are what can be asked for.
	Models []Model `yaml:"models"`
	// Aliases are names that resolve to weighted models (canary, A/B, blue/green).
	Aliases []Alias `yaml:"aliases"`
	// Tenants are who may ask.
	Tenants []Tenant `yaml:"tenants"`
	// Issuers are who signs tokens (JWT) that stand for API keys.
	Issuers []Issuer `yaml:"issuers"`
	// Pools are workers set apart for some of the requests. The first pool that a request matches is its own.
	Pools []Pool `yaml:"pools"`
	// Steering holds the global tier's policy.
	Steering Steering `yaml:"steering"`
	// Routing holds the regional and local tiers' policy.
	Routing Routing `yaml:"routing"`

	index *index // what lookups use; nil on a Spec that Decode did not make
}

// Zone is the DNS zone's own data.
type Zone struct {
	// Name is the apex, fully qualified ("api.example.").
	Name string `yaml:"name"`
	// Contact is the SOA's responsible mailbox as a DNS name ("hostmaster.api.example."). Default: hostmaster.<name>.
	Contact string `yaml:"contact"`
	// Nameservers are the NS names with their addresses (glue), one per global node as resolvers see it.
	Nameservers []Nameserver `yaml:"nameservers"`
	// TTL is the TTL of SOA, NS and glue. Default 1h.
	TTL Duration `yaml:"ttl" default:"1h"`
	// CAA says which authorities may issue certificates for names in the zone (RFC 8659). Empty means any.
	CAA []CAA `yaml:"caa"`
	// DNSSEC is how the zone is signed while it is.
	DNSSEC DNSSEC `yaml:"dnssec"`
}

// CAA is one property of the zone's certification authorities.
type CAA struct {
	// Tag is "issue", "issuewild", "issuemail" or "iodef".
	Tag string `yaml:"tag"`
	// Value is an authority's domain ("letsencrypt.org"), ";" for none at all, or for iodef a URL.
	Value string `yaml:"value"`
	// Critical lets authorities that do not know the tag issue nothing.
	Critical bool `yaml:"critical"`
}

// Nameserver is one authoritative name with its addresses.
type Nameserver struct {
	// Name is fully qualified ("ns1.api.example.").
	Name string `yaml:"name"`
	// Addresses are the glue that resolvers connect to.
	Addresses []netip.Addr `yaml:"addresses"`
}

// Service is one DNS name that clients use.
type Service struct {
	// Name is fully qualified and at or below the zone ("chat.api.example.").
	Name string `yaml:"name"`
	// Models the service serves. Empty means all. With two services or more a gateway refuses a Host that names none of them
	// with 421; asked by its address or its own name, it serves what all of them serve.
	Models []string `yaml:"models"`
	// Regions that may answer for the service. Empty means all.
	Regions []string `yaml:"regions"`
	// Mode is "latency" (default), "geo", "weighted" or "failover".
	Mode string `yaml:"mode" default:"latency"`
	// Weights by region, for mode "weighted".
	Weights map[string]float64 `yaml:"weights"`
	// Order of regions, for mode "failover".
	Order []string `yaml:"order"`
	// TTL of steered answers. Default 20s, at least 5s.
	TTL Duration `yaml:"ttl" default:"20s"`
	// MinWarm makes mode "failover" a pilot light: a region of the order counts as able to take over while it has at
	// least this many workers ready or warm, and is filled no further than they carry before the next one is. 0: the
	// first region of the order that is well takes all.
	MinWarm int `yaml:"min_warm"`
	// Canary sends a part of every cell's clients to one region, in any mode, and nobody else.
	Canary Canary `yaml:"canary"`
	// SessionTokens is the cached context of a typical live session, in tokens. A client moves only for a gain above
	// the time that its next region needs to compute it again. 0: moves are free.
	SessionTokens int `yaml:"session_tokens"`
	// PrefixTokens is the part of a typical prompt that a warm prefix cache saves, in tokens: regions whose caches hold
	// fewer of the hot prefixes cost the time to compute it. 0: warmth does not count.
	PrefixTokens int `yaml:"prefix_tokens"`
	// RedirectPort is the port of the gateways' front door as it stands in the Location of a 307. Default: that of
	// the gateway's own URL.
	RedirectPort int `yaml:"redirect_port"`
	// RedirectProxy says whether the redirect endpoint passes requests on to the region instead of answering 307, for
	// clients that cannot follow: "never"; "asked", for those with the header Prefer: proxy, and for openai-go from version
	// 3, which refuses redirects to another host; or "always", but for those with Prefer: redirect. Every byte then goes
	// through a global node, for at most http.max_proxied requests at once.
	RedirectProxy string `yaml:"redirect_proxy" default:"asked"`
}

// Canary is a region that takes a stated part of a service's clients.
type Canary struct {
	// Region that takes them. Empty means no canary.
	Region string `yaml:"region"`
	// Share of every cell's clients, above 0 and below 1.
	Share float64 `yaml:"share"`
}

// Region is one place that serves.
type Region struct {
	// Name is a DNS label ("fra"): it stands in child names of services and in certificates.
	Name string `yaml:"name"`
	// Place is where it stands, for distances.
	Place Place `yaml:"place"`
	// Zones are the failure domains inside it. A drain names them, and a summary from any other zone is refused.
	Zones []string `yaml:"zones"`
	// ZoneWeights say how much more of the requests one zone takes than another where both are as good, such as {a: 2, b: 1}.
	// A zone that is not named has the weight 1. A difference of cost weighs more than any weight.
	ZoneWeights map[string]float64 `yaml:"zone_weights"`
	// Gateways are the instances that clients reach.
	Gateways []Gateway `yaml:"gateways"`
	// Residency lists the jurisdictions the region counts as ("eu", "us"). A tenant that names one may be served only there.
	Residency []string `yaml:"residency"`
	// MaxShare caps the part of the region's measured capacity that steering fills, 0..1. Default 0.85.
	MaxShare float64 `yaml:"max_share" default:"0.85"`
	// MaxWorkers is the most workers of one model that the region has, ready or asleep. Steering counts no more, whatever
	// its gateways report. Default 0: the region's reports are bounded by what it had before and by the largest other
	// region, and the leader logs what it does not count.
	MaxWorkers int `yaml:"max_workers"`
	// BiasMS is added to every client's RTT to this region, in milliseconds; negative attracts.
	BiasMS float64 `yaml:"bias_ms"`
	// BiasPercent makes the region look nearer (1..99) or farther (-99..-1) by that part of every client's RTT. Change
	// it in small steps: clients halfway between regions move all at once.
	BiasPercent float64 `yaml:"bias_percent"`
	// Preferred regions (reserved capacity) are filled to their share before any other gets a client, in mode "latency".
	Preferred bool `yaml:"preferred"`
	// EgressCost of the region's answers, in dollars per million tokens. It counts by steering.dollar_ms.
	EgressCost float64 `yaml:"egress_cost"`
	// Quotas cap, by model, the tokens/s that steering sends here whatever the capacity is.
	Quotas map[string]float64 `yaml:"quotas"`
}

// Place is a point on the globe.
type Place struct {
	City string  `yaml:"city"` // for people
	Lat  float64 `yaml:"lat"`  // degrees, north positive
	Lon  float64 `yaml:"lon"`  // degrees, east positive
}

// Gateway is one instance of a regional tier as clients see it.
type Gateway struct {
	// Name is a DNS label, unique in the region and the same as in the gateway's certificate.
	Name string `yaml:"name"`
	// Addresses are what A and AAAA answer.
	Addresses []netip.Addr `yaml:"addresses"`
	// URL is the front door as reached from outside, scheme and port included ("http://127.0.2.1:8080").
	URL string `yaml:"url"`
}

// Model is one served model id.
type Model struct {
	// Name is the id that clients ask for and workers serve.
	Name string `yaml:"name"`
	// MaxContext is the longest prompt plus output, in tokens. 0 means: what the workers say.
	MaxContext int `yaml:"max_context"`
	// MaxOutput is assumed where a request names no limit, in tokens. Default 1024.
	MaxOutput int `yaml:"max_output" default:"1024"`
	// OutputLimit is the longest answer a request may have, in tokens: one that asks for more gets 400, and one that names
	// no limit, as its path has it, gets this one. It does not hold for tensors and WebSockets, which are not read. 0 means
	// none but the model's context.
	OutputLimit int `yaml:"output_limit"`
	// BytesPerToken turns body bytes into tokens before any were counted. Default 4.
	BytesPerToken float64 `yaml:"bytes_per_token" default:"4"`
	// Price is what its tokens cost, for budgets and usage records. Default: nothing.
	Price Price `yaml:"price"`
	// TTFT is the target time to first token by class. Defaults 1s, 2s, 30s.
	TTFT Targets `yaml:"ttft"`
	// Parent is the base model of a LoRA adapter. Empty for whole models.
	Parent string `yaml:"parent"`
	// Load says how workers come by a model that they do not have.
	Load LoadFrom `yaml:"load"`
	// WarmReplicas is how many workers of a zone keep the model loaded and awake, asked for or not. Default 0.
	WarmReplicas int `yaml:"warm_replicas"`
	// IdleAfter is how long a replica may be unused before its worker lets it go or is put to sleep. 0 means never.
	IdleAfter Duration `yaml:"idle_after"`
	// Autoscaling is what desired replicas are reckoned by.
	Autoscaling Autoscaling `yaml:"autoscaling"`
	// Fallback is a smaller model that answers instead when no worker can meet the class's target time to first token
	// and the fallback can, for tenants that allow it. The answer's header X-Spillway-Fallback then names both. It may
	// have a fallback in turn. Embeddings and `infer` have none: their numbers differ from model to model.
	Fallback string `yaml:"fallback"`
}

// Targets holds one duration for each class.
type Targets struct {
	Interactive Duration `yaml:"interactive" default:"1s"` // for people who wait at a screen
	Standard    Duration `yaml:"standard" default:"2s"`    // for most programs
	Batch       Duration `yaml:"batch" default:"30s"`      // for work that nobody waits for
}

// Of returns the class's target.
func (t Targets) Of(c Class) time.Duration {
	switch c {
	case Interactive:
		return time.Duration(t.Interactive)
	case Batch:
		return time.Duration(t.Batch)
	}
	return time.Duration(t.Standard)
}

// Tenant is who is asking.
type Tenant struct {
	// Name stands in metrics and headers.
	Name string `yaml:"name"`
	// Keys are hashed API keys, "sha256:<64 hex digits>" as `spillway config key` prints them. Two may be active while one is rotated.
	Keys []string `yaml:"keys" secret:"true"`
	// Class is given to requests that name none, and is the highest a request may name (x-spillway-class, or an objective of
	// routing.objectives). Default standard.
	Class Class `yaml:"class" default:"standard"`
	// TimedKeys are hashed API keys that hold for a time, so that one can be replaced without a gap.
	TimedKeys []TimedKey `yaml:"timed_keys"`
	// Limits bound what the tenant may use. Zero means unlimited.
	Limits Limits `yaml:"limits"`
	// Budget bounds what the tenant may use in a day.
	Budget Budget `yaml:"budget"`
	// Residency lists jurisdictions; the tenant's requests are served only in regions that carry one of them. Empty means anywhere.
	Residency []string `yaml:"residency"`
	// Regions that may serve the tenant. Empty means all that its residency allows.
	Regions []string `yaml:"regions"`
	// Models the tenant may use. Empty means all.
	Models []string `yaml:"models"`
	// Weight is the tenant's share of a busy local tier beside the other tenants of its class. Default 1.
	Weight float64 `yaml:"weight" default:"1"`
	// PrefixGroup lets the tenants that name the same group find each other's cached prompts. Faster for tenants that share
	// long system prompts; but how soon an answer begins then tells each of them whether another has lately sent the same
	// beginning. Group only tenants that may know that of each other. Default: no tenant is told anything of another.
	PrefixGroup string `yaml:"prefix_group"`
	// Trusted is for a tenant that calls on behalf of many, such as an inference gateway or an application of the operator's
	// own. Its header x-gateway-inference-fairness-id (or x-llm-d-inference-fairness-id) tells its callers apart: each of them
	// has the tenant's weight where zones are busy. Its answers say which worker they are from, in
	// x-gateway-destination-endpoint-served. Nobody else is believed, or told. In a zone that stands alone, where everybody is
	// the tenant "default", this tenant's own entry says so. Default false.
	Trusted bool `yaml:"trusted"`
	// Fallback lets a model's fallback answer the tenant's requests. In a zone that stands alone, where everybody is the
	// tenant "default", this tenant's own entry says so.
	Fallback bool `yaml:"fallback"`
	// Resume lets the tenant's streams go on elsewhere when their worker, zone or region is lost: the text so far is then
	// sent to another worker, which continues it. Default true.
	Resume *bool `yaml:"resume" default:"true"`
}

// TimedKey is a hashed API key that holds for a time.
type TimedKey struct {
	// Hash of the key, as `spillway config key` prints it.
	Hash string `yaml:"hash" secret:"true"`
	// NotBefore is from when on it is taken, such as 2026-01-31T00:00:00Z, give or take a minute. Empty: at once.
	NotBefore Moment `yaml:"not_before"`
	// NotAfter is until when it is taken, give or take a minute. Empty: until it is removed.
	NotAfter Moment `yaml:"not_after"`
}

// Limits of one tenant.
type Limits struct {
	// Scope is where the limits and the budget hold: "region" (in each region by itself) or "global" (in all regions
	// together: the leader splits them by use, and a gateway without news from it has a static share).
	Scope             string `yaml:"scope" default:"region"`
	RequestsPerMinute int    `yaml:"requests_per_minute"` // 0 means unlimited
	TokensPerMinute   int    `yaml:"tokens_per_minute"`   // prompt and output together, 0 means unlimited
	Concurrency       int    `yaml:"concurrency"`         // requests in flight, 0 means unlimited
}

// Steering is the global tier's policy.
type Steering struct {
	// Interval between plans at the leader. Default 1s.
	Interval Duration `yaml:"interval" default:"1s"`
	// DeadBand is the relative gain below which a new plan is not published. Default 0.05.
	DeadBand float64 `yaml:"dead_band" default:"0.05"`
	// MaxStep is the largest part of a cell's traffic one plan may move into one region while its old region is well, 0..1.
	// Default 0.25.
	MaxStep float64 `yaml:"max_step" default:"0.25"`
	// MinShift is the part of a cell's traffic below which a change is left out of a plan, 0..1. Default 0.02.
	MinShift float64 `yaml:"min_shift" default:"0.02"`
	// Slew is the part of a region's capacity that plans may add to its load per second while the clients' old regions
	// are well, 0..1. Default 0.25.
	Slew float64 `yaml:"slew" default:"0.25"`
	// Ramp is how long a region that returns from a drain or a loss takes to get its whole share. 0 returns it at once. Default 30s.
	Ramp *Duration `yaml:"ramp" default:"30s"`
	// DrainGuard is the most of all workers that may be kept out of use automatically: a region of which less than a
	// quarter is ready gets nobody in mode "latency" until more than a third has been for a minute. An operator's drains
	// are not counted. 0 never does so. Default 0.5.
	DrainGuard *float64 `yaml:"drain_guard" default:"0.5"`
	// DrainMinRegions is how many regions a drain must leave that take clients. Unless forced, a drain that leaves fewer is
	// refused; 0 allows any. Default 1.
	DrainMinRegions *int `yaml:"drain_min_regions" default:"1"`
	// DrainMinZones is likewise how many zones the drain of a zone must leave in its region. Default 1.
	DrainMinZones *int `yaml:"drain_min_zones" default:"1"`
	// DrainMinCapacity is the part of each model's prefill rate in all regions that a drain must leave in use, 0..1; what was
	// drained before counts as gone. Default 0.25.
	DrainMinCapacity *float64 `yaml:"drain_min_capacity" default:"0.25"`
	// DollarMS is what saving one dollar per million tokens is worth, in milliseconds. Default 0: money does not count.
	DollarMS float64 `yaml:"dollar_ms"`
}

// Routing is the regional and local tiers' policy.
type Routing struct {
	// Policy names the worker-choice policy of local tiers: predictive, round_robin, weighted_round_robin, random,
	// weighted_random, power_of_two, least_connections, weighted_least_connections, least_queue, least_pending_tokens,
	// least_response_time, gpu_utilization, gpu_aware, consistent_hash, prefix_affinity, sticky_until_saturated, prequal,
	// lmetric, cache_aware, overlap_cost or score_blend. Default predictive.
	Policy string `yaml:"policy" default:"predictive"`
	// HashKey is what the policy consistent_hash keeps requests together by: "session" (the header X-Session-Id, else
	// the body's user), "tenant", "prefix" (the first 1 KiB of the prompt) or "header:NAME". A request without it goes by
	// its prefix. Default "session".
	HashKey string `yaml:"hash_key" default:"session"`
	// KVOvercommit is the most of a worker's KV cache that requests in flight may be promised together, prompts and
	// predicted answers, as a factor. Over 1, because answers that run together are seldom at their ends together: those that
	// began one after another hold half of what they will; but requests that name x-slo-ttft-ms, and those of tenants over
	// their share, get none of what is beyond the cache. It falls by itself for a worker that preempts or runs out of memory.
	// Default 1.2.
	KVOvercommit float64 `yaml:"kv_overcommit" default:"1.2"`
	// LongShare is the part of a worker's KV cache that long requests (over a quarter of it each) may hold together, so that
	// they cannot keep short ones out. One is always let in, and what the worker has cached of one does not count. 1 is no bound.
	// Default 0.5.
	LongShare float64 `yaml:"long_share" default:"0.5"`
	// OverlapWeight is what a block to prefill counts to the policy overlap_cost, in blocks held by what runs: more favours
	// cached prefixes, less an even batch. Default 1.
	OverlapWeight float64 `yaml:"overlap_weight" default:"1"`
	// Temperature is how freely the policy overlap_cost strays from the least cost: at 1 the dearest worker is drawn e times
	// as rarely as the cheapest. Default 0: never.
	Temperature float64 `yaml:"temperature"`
	// Spill allows a region to forward to a peer. Default true.
	Spill *bool `yaml:"spill" default:"true"`
	// SpillMargin is how much cheaper a peer must be, RTT included, before a request spills. Default 20ms.
	SpillMargin Duration `yaml:"spill_margin" default:"20ms"`
	// SpillShare is the part of a peer's headroom that one region may spill into: its budget for the pair of regions, in
	// tokens/s, which its gateways divide equally and which bursts to one second's. A request that nothing at home can serve
	// is not held to it. Default 0.5.
	SpillShare float64 `yaml:"spill_share" default:"0.5"`
	// SpillFresh is how old a peer's word on its headroom may be for a request that could be served at home. Default 3s: the
	// global tier passes it on each second. While that is silent itself, peers that were well by its last word are asked all the
	// same, for ten minutes: they let in only what is sooner there.
	SpillFresh Duration `yaml:"spill_fresh" default:"3s"`
	// MaxBody bounds a request's body, in bytes. Default 8 MiB.
	MaxBody int64 `yaml:"max_body" default:"8388608"`
	// ExtraPaths are request paths and gRPC methods that pass to workers beside those of inference that always do (OpenAI's,
	// Anthropic's /v1/messages, rerank, score, tokenize, KServe v2 infer and generate, /v1/realtime); all others are answered
	// 404. A path is "/api/chat" or "/package.Service/Method"; a segment {name} takes any one, a last * takes the rest. The
	// model is read from the body's "model", or named in the header x-model. Engines' own generation paths (/api/chat,
	// /api/generate, /generate, /completion) are among those to add, with care: Ollama's keep_alive and options manage the
	// worker. A wildcard must not cover a path that manages an engine; written out, such a path passes. Default: none.
	ExtraPaths []string `yaml:"extra_paths"`
	// RetryBudget is the share of requests that may be tried a second time. Default 0.1.
	RetryBudget float64 `yaml:"retry_budget" default:"0.1"`
	// ResumeText is how long the text of a stream may be that is kept so that the stream can be resumed, in bytes. 0: no stream
	// is resumed. Default 262144.
	ResumeText *int `yaml:"resume_text" default:"262144"`
	// Hedge says when local tiers send a request to a second worker as well.
	Hedge Hedging `yaml:"hedge"`
	// UsageInStreams has engines state the usage of every chat and completions stream, so that tenants' tokens are counted
	// and not guessed. A client that did not ask for it is not shown it. Default true.
	UsageInStreams *bool `yaml:"usage_in_streams" default:"true"`
	// Objectives are names that requests may give for a class in the header x-gateway-inference-objective (or
	// x-llm-d-inference-objective), beside the classes' own. A request never gets more than its tenant's class, and an
	// unknown name says nothing. Default: none.
	Objectives []Objective `yaml:"objectives"`
	// Queue says how requests wait at local tiers while no worker has room.
	Queue Queueing `yaml:"queue"`
	// Health says when local tiers take a worker out, and how it comes back.
	Health Healthing `yaml:"health"`
	// Batch says how local tiers merge small requests into one call of a worker.
	Batch Batching `yaml:"batch"`
}

// Objective is another name for a class.
type Objective struct {
	// Name as requests write it.
	Name string `yaml:"name"`
	// Class that it stands for: interactive, standard or batch. Default standard.
	Class Class `yaml:"class" default:"standard"`
}

// Batching is how local tiers merge embeddings and `infer` requests for one model into one call of a worker.
type Batching struct {
	// Enabled merges requests that differ in nothing but their inputs. Default true.
	Enabled *bool `yaml:"enabled" default:"true"`
	// MaxSize bounds the inputs of one call. Default 64.
	MaxSize int `yaml:"max_size" default:"64"`
	// PreferredSizes are sizes that suit the engine, ascending: a call that is not full is rounded down to one of them.
	PreferredSizes []int `yaml:"preferred_sizes"`
	// MaxDelay bounds how long a request waits for others while its model's workers are busy. An idle worker is never
	// kept waiting. Default 5ms.
	MaxDelay Duration `yaml:"max_delay" default:"5ms"`
	// MaxBytes bounds the bodies that make one call, in bytes. Default 1 MiB.
	MaxBytes int64 `yaml:"max_bytes" default:"1048576"`
	// AcrossTenants lets requests of different tenants share a call, and identical ones an answer. The call then takes
	// the turn of the tenant that came first. Default: each tenant's requests are merged apart.
	AcrossTenants bool `yaml:"across_tenants"`
	// InferModels are the models whose /v2/models/M/infer tensors have the batch as their first dimension. Requests for
	// any other model are never merged: rows of something else must not be taken for a batch.
	InferModels []string `yaml:"infer_models"`
}
