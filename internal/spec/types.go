package spec

import (
	"net/netip"
	"time"
)

// Spec is the operator's declared state. It is replicated by Raft and never edited in place: a change is a new
// Spec, applied by compare-and-swap on the version that it is based on.
type Spec struct {
	// Zone is the DNS zone that Spillway is authoritative for, such as "api.example.": services are names at or
	// below it.
	Zone DNSZone `yaml:"zone"`
	// Services are the DNS names that clients use.
	Services []Service `yaml:"services"`
	// Regions are the serving locations, each with the gateways that clients reach.
	Regions []Region `yaml:"regions"`
	// Models are the models that can be requested.
	Models []Model `yaml:"models"`
	// Aliases are names that resolve to weighted models (canary, A/B, blue/green).
	Aliases []Alias `yaml:"aliases"`
	// Tenants are the customers that may send requests.
	Tenants []Tenant `yaml:"tenants"`
	// Issuers are the issuers of tokens (JWT), which clients use instead of API keys.
	Issuers []TokenIssuer `yaml:"issuers"`
	// Pools are workers dedicated to some of the requests. A request belongs to the first pool that it matches.
	Pools []WorkerPool `yaml:"pools"`
	// Steering holds the global tier's policy.
	Steering Steering `yaml:"steering"`
	// Safety holds the rules that every drain must keep.
	Safety Safety `yaml:"safety"`
	// Routing holds the regional and local tiers' policy.
	Routing Routing `yaml:"routing"`

	index *specIndex // for lookups; nil on a Spec not made by Decode
}

// DNSZone is the DNS zone's own data.
type DNSZone struct {
	// Name is the apex, fully qualified ("api.example.").
	Name string `yaml:"name"`
	// Contact is the SOA's responsible mailbox as a DNS name ("hostmaster.api.example."). Default: hostmaster.<name>.
	Contact string `yaml:"contact"`
	// Nameservers are the NS names with their addresses (glue), one per global node as resolvers see it.
	Nameservers []Nameserver `yaml:"nameservers"`
	// TTL is the TTL of SOA, NS and glue. Default 1h.
	TTL Duration `yaml:"ttl" default:"1h"`
	// CAA lists the authorities that may issue certificates for names in the zone (RFC 8659). Empty means any.
	CAA []CAAProperty `yaml:"caa"`
	// DNSSEC holds the signing parameters of the zone, used while it is signed.
	DNSSEC DNSSEC `yaml:"dnssec"`
}

// CAAProperty is one CAA record of the zone.
type CAAProperty struct {
	// Tag is "issue", "issuewild", "issuemail" or "iodef".
	Tag string `yaml:"tag"`
	// Value is the domain of an authority ("letsencrypt.org"), ";" for none, or a URL for iodef.
	Value string `yaml:"value"`
	// Critical forbids authorities that do not understand the tag to issue certificates.
	Critical bool `yaml:"critical"`
}

// Nameserver is one authoritative name with its addresses.
type Nameserver struct {
	// Name is fully qualified ("ns1.api.example.").
	Name string `yaml:"name"`
	// Addresses are the glue addresses that resolvers connect to.
	Addresses []netip.Addr `yaml:"addresses"`
}

// Service is one DNS name that clients use.
type Service struct {
	// Name is fully qualified and at or below the zone ("chat.api.example.").
	Name string `yaml:"name"`
	// Models served by the service. Empty means all. With two or more services a gateway refuses a Host that
	// names none of them with 421; a request to its address or its own name is served the models common to all.
	Models []string `yaml:"models"`
	// Regions that may serve the service. Empty means all.
	Regions []string `yaml:"regions"`
	// Mode is "latency" (default), "geo", "weighted" or "failover".
	Mode string `yaml:"mode" default:"latency"`
	// Weights by region, for mode "weighted".
	Weights map[string]float64 `yaml:"weights"`
	// Order of regions, for mode "failover".
	Order []string `yaml:"order"`
	// TTL of steered DNS answers. Default 20s, at least 5s.
	TTL Duration `yaml:"ttl" default:"20s"`
	// MinWarm makes mode "failover" a pilot light: a region of the order can take over while it has at least
	// this many workers ready or warm, and is filled only to their capacity before the next region is used. 0:
	// the first healthy region of the order gets all traffic.
	MinWarm int `yaml:"min_warm"`
	// Canary sends a fixed share of every cell's clients to one region, in any mode, and no others.
	Canary Canary `yaml:"canary"`
	// SessionTokens is the cached context of a typical live session, in tokens. A client is moved only if the
	// gain exceeds the time that the new region needs to recompute it. 0: moves are free.
	SessionTokens int `yaml:"session_tokens"`
	// PrefixTokens is the part of a typical prompt that a warm prefix cache saves, in tokens: regions whose
	// caches hold fewer of the hot prefixes are charged the time to compute it. 0: cache contents do not count.
	PrefixTokens int `yaml:"prefix_tokens"`
	// RedirectPort is the port of the gateways' public listener in the Location of a 307. Default: that of the
	// gateway's own URL.
	RedirectPort int `yaml:"redirect_port"`
	// RedirectProxy controls whether the redirect endpoint forwards requests to the region instead of
	// responding 307, for clients that cannot follow redirects: "never"; "asked", for those with the header
	// Prefer: proxy, and for openai-go from version 3, which refuses redirects to another host; or "always",
	// except for those with Prefer: redirect. All bytes then pass through a global node, for at most
	// http.max_proxied concurrent requests.
	RedirectProxy string `yaml:"redirect_proxy" default:"asked"`
}

// Canary is a region that receives a fixed share of a service's clients.
type Canary struct {
	// Region that receives them. Empty means no canary.
	Region string `yaml:"region"`
	// Share of every cell's clients, above 0 and below 1.
	Share float64 `yaml:"share"`
}

// Region is one serving location.
type Region struct {
	// Name is a DNS label ("fra"): it is part of the child names of services and of certificates.
	Name string `yaml:"name"`
	// Place is the geographic location of the region, for distances.
	Place Location `yaml:"place"`
	// Zones are the failure domains of the region. A drain names them, and a summary from any other zone is
	// refused.
	Zones []string `yaml:"zones"`
	// ZoneWeights are the relative shares of requests of equally good zones, such as {a: 2, b: 1}. A zone that
	// is not listed has weight 1. A difference in cost takes precedence over weights.
	ZoneWeights map[string]float64 `yaml:"zone_weights"`
	// Gateways are the instances that clients reach.
	Gateways []Gateway `yaml:"gateways"`
	// Residency lists the jurisdictions of the region ("eu", "us"). A tenant that names one may be served only
	// there.
	Residency []string `yaml:"residency"`
	// MaxShare is the fraction of the region's measured capacity that steering fills, 0..1. Default 0.85.
	MaxShare float64 `yaml:"max_share" default:"0.85"`
	// MaxWorkers is the largest number of workers of one model in the region, ready or asleep. Steering counts
	// no more, even if gateways report more. Default 0: the region's reports are bounded by its earlier ones
	// and by the largest other region, and the leader logs what it ignores.
	MaxWorkers int `yaml:"max_workers"`
	// BiasMS is added to every client's RTT to this region, in milliseconds; negative attracts.
	BiasMS float64 `yaml:"bias_ms"`
	// BiasPercent makes the region appear nearer (1..99) or farther (-99..-1) by this percentage of every
	// client's RTT. Change it in small steps: clients halfway between regions move all at once.
	BiasPercent float64 `yaml:"bias_percent"`
	// Preferred regions (reserved capacity) are filled to max_share before any other region gets a client, in
	// mode "latency".
	Preferred bool `yaml:"preferred"`
	// EgressCost of the region's responses, in dollars per million tokens. It is weighted by
	// steering.dollar_ms.
	EgressCost float64 `yaml:"egress_cost"`
	// Quotas cap, by model, the tokens/s that steering sends here, independent of capacity.
	Quotas map[string]float64 `yaml:"quotas"`
}

// Location is a point on the globe.
type Location struct {
	City string  `yaml:"city"` // for display
	Lat  float64 `yaml:"lat"`  // degrees, north positive
	Lon  float64 `yaml:"lon"`  // degrees, east positive
}

// Gateway is one public instance of a regional tier.
type Gateway struct {
	// Name is a DNS label, unique in the region and the same as in the gateway's certificate.
	Name string `yaml:"name"`
	// Addresses are those in A and AAAA answers.
	Addresses []netip.Addr `yaml:"addresses"`
	// URL is the public listener as reached from outside, with scheme and port ("http://127.0.2.1:8080").
	URL string `yaml:"url"`
}

// Model is one served model id.
type Model struct {
	// Name is the id that clients request and workers serve.
	Name string `yaml:"name"`
	// MaxContext is the longest prompt plus output, in tokens. 0 means the value that the workers report.
	MaxContext int `yaml:"max_context"`
	// MaxOutput is the assumed output of a request without a limit, in tokens. Default 1024.
	MaxOutput int `yaml:"max_output" default:"1024"`
	// OutputLimit is the longest allowed response, in tokens: a request for more gets 400, and one that sets no
	// limit gets this one. It does not apply to tensors and WebSockets, which are not parsed. 0 means only the
	// model's context limits it.
	OutputLimit int `yaml:"output_limit"`
	// BytesPerToken converts body bytes to tokens before any were counted. Default 4.
	BytesPerToken float64 `yaml:"bytes_per_token" default:"4"`
	// Price is the price of its tokens, for budgets and usage records. Default: none.
	Price Price `yaml:"price"`
	// TTFT is the target time to first token by class. Defaults 1s, 2s, 30s.
	TTFT TTFTTargets `yaml:"ttft"`
	// Parent is the base model of a LoRA adapter. Empty for whole models.
	Parent string `yaml:"parent"`
	// Load describes how workers obtain a model that they do not have.
	Load LoadSource `yaml:"load"`
	// WarmReplicas is how many workers of a zone keep the model loaded and awake, requested or not. Default 0.
	WarmReplicas int `yaml:"warm_replicas"`
	// IdleAfter is how long a replica may be unused before its worker unloads it or is put to sleep. 0 means
	// never.
	IdleAfter Duration `yaml:"idle_after"`
	// Autoscaling holds the parameters of the desired number of replicas.
	Autoscaling Autoscaling `yaml:"autoscaling"`
	// Fallback is a smaller model that answers instead if no worker can meet the class's target time to first
	// token and the fallback can, for tenants that allow it. The response header X-Spillway-Fallback then names
	// both. It may have its own fallback. Embeddings and `infer` have none: their numbers differ between
	// models.
	Fallback string `yaml:"fallback"`
}

// TTFTTargets holds one duration for each class.
type TTFTTargets struct {
	Interactive Duration `yaml:"interactive" default:"1s"` // for interactive users
	Standard    Duration `yaml:"standard" default:"2s"`    // for most programs
	Batch       Duration `yaml:"batch" default:"30s"`      // for work without a waiting user
}

// ForClass returns the target of a class.
func (t TTFTTargets) ForClass(c Class) time.Duration {
	switch c {
	case Interactive:
		return time.Duration(t.Interactive)
	case Batch:
		return time.Duration(t.Batch)
	}
	return time.Duration(t.Standard)
}

// Tenant is a customer that sends requests.
type Tenant struct {
	// Name is used in metrics and headers.
	Name string `yaml:"name"`
	// Keys are hashed API keys, "sha256:<64 hex digits>" as `spillway config key` prints them. Two may be active while one is rotated.
	Keys []string `yaml:"keys" secret:"true"`
	// Class is that of requests that name none, and the highest that a request may name (x-spillway-class, or
	// an objective of routing.objectives). Default standard.
	Class Class `yaml:"class" default:"standard"`
	// TimedKeys are hashed API keys with a validity period, for rotation without a gap.
	TimedKeys []TimedKey `yaml:"timed_keys"`
	// Limits bound the tenant's use. Zero means unlimited.
	Limits TenantLimits `yaml:"limits"`
	// Budget bounds the tenant's use per day.
	Budget Budget `yaml:"budget"`
	// Residency lists jurisdictions; the tenant's requests are served only in regions with one of them. Empty
	// means anywhere.
	Residency []string `yaml:"residency"`
	// Regions that may serve the tenant. Empty means all that its residency allows.
	Regions []string `yaml:"regions"`
	// Models the tenant may use. Empty means all.
	Models []string `yaml:"models"`
	// Weight is the tenant's share of a busy local tier, relative to the other tenants of its class. Default 1.
	Weight float64 `yaml:"weight" default:"1"`
	// PrefixGroup lets tenants of the same group share cached prompts. It is faster for tenants with common
	// long system prompts, but the time to the first token then reveals to each of them whether another has
	// recently sent the same beginning. Group only tenants that may know that. Default: no sharing between
	// tenants.
	PrefixGroup string `yaml:"prefix_group"`
	// Trusted is for a tenant that sends requests for many users, such as an inference gateway or an
	// application of the operator. Its header x-gateway-inference-fairness-id (or
	// x-llm-d-inference-fairness-id) identifies its users: each of them gets the tenant's weight in busy zones.
	// Its responses name their worker in x-gateway-destination-endpoint-served. These headers are ignored and
	// omitted for other tenants. In a standalone zone, where all clients are the tenant "default", the entry of
	// that tenant applies. Default false.
	Trusted bool `yaml:"trusted"`
	// Fallback lets a model's fallback answer the tenant's requests. In a standalone zone, where all clients
	// are the tenant "default", the entry of that tenant applies.
	Fallback bool `yaml:"fallback"`
	// Resume lets the tenant's streams continue elsewhere when their worker, zone or region is lost: the text
	// so far is then sent to another worker, which continues it. Default true.
	Resume *bool `yaml:"resume" default:"true"`
}

// TimedKey is a hashed API key with a validity period.
type TimedKey struct {
	// Hash of the key, as `spillway config key` prints it.
	Hash string `yaml:"hash" secret:"true"`
	// NotBefore is the time from which it is valid, such as 2026-01-31T00:00:00Z, +- 1 minute. Empty: at once.
	NotBefore Timestamp `yaml:"not_before"`
	// NotAfter is the time until which it is valid, +- 1 minute. Empty: until it is removed.
	NotAfter Timestamp `yaml:"not_after"`
}

// TenantLimits are the limits of one tenant.
type TenantLimits struct {
	// Scope of the limits and the budget: "region" (in each region separately) or "global" (in all regions
	// together: the leader distributes them by use, and a gateway without a current lease has a static share).
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
	// MaxStep is the largest fraction of a cell's traffic that one plan may move into one region while its old
	// region is healthy, 0..1. Default 0.25.
	MaxStep float64 `yaml:"max_step" default:"0.25"`
	// MinShift is the fraction of a cell's traffic below which a change is omitted from a plan, 0..1. Default
	// 0.02.
	MinShift float64 `yaml:"min_shift" default:"0.02"`
	// Slew is the fraction of a region's capacity that plans may add to its load per second while the clients'
	// old regions are healthy, 0..1. Default 0.25.
	Slew float64 `yaml:"slew" default:"0.25"`
	// Ramp is how long a region that returns from a drain or a loss takes to reach its full share. 0 returns it
	// at once. Default 30s.
	Ramp *Duration `yaml:"ramp" default:"30s"`
	// DrainGuard is the largest fraction of all workers that may be taken out of use automatically: a region
	// with less than a quarter of its workers ready gets no clients in mode "latency" until more than a third
	// has been ready for a minute. Drains by the operator are not counted. 0 disables it. Default 0.5.
	DrainGuard *float64 `yaml:"drain_guard" default:"0.5"`
	// DrainMinRegions is how many regions a drain must leave in service. Unless forced, a drain that leaves
	// fewer is refused; 0 allows any. Default 1.
	DrainMinRegions *int `yaml:"drain_min_regions" default:"1"`
	// DrainMinZones is how many zones the drain of a zone must leave in its region. Default 1.
	DrainMinZones *int `yaml:"drain_min_zones" default:"1"`
	// DrainMinCapacity is the fraction of each model's prefill rate in all regions that a drain must leave in
	// use, 0..1; earlier drains count as gone. Default 0.25.
	DrainMinCapacity *float64 `yaml:"drain_min_capacity" default:"0.25"`
	// DollarMS is the value of saving one dollar per million tokens, in milliseconds. Default 0: cost does not
	// count.
	DollarMS float64 `yaml:"dollar_ms"`
}

// Routing is the regional and local tiers' policy.
type Routing struct {
	// Policy names the worker-choice policy of local tiers: predictive, round_robin, weighted_round_robin, random,
	// weighted_random, power_of_two, least_connections, weighted_least_connections, least_queue, least_pending_tokens,
	// least_response_time, gpu_utilization, gpu_aware, consistent_hash, prefix_affinity, sticky_until_saturated, prequal,
	// lmetric, cache_aware, overlap_cost or score_blend. Default predictive.
	Policy string `yaml:"policy" default:"predictive"`
	// HashKey is the key of the policy consistent_hash: "session" (the header X-Session-Id, else the body's
	// user), "tenant", "prefix" (the first 1 KiB of the prompt) or "header:NAME". A request without it uses its
	// prefix. Default "session".
	HashKey string `yaml:"hash_key" default:"session"`
	// KVOvercommit bounds the prompts and predicted responses in flight at a worker, as a factor of its KV
	// cache. It may exceed 1, because concurrent responses seldom reach their ends together: with staggered
	// starts they hold half of their final size on average. Requests with x-slo-ttft-ms, and those of tenants
	// over their fair share, get no room beyond the cache. It falls automatically for a worker that preempts or
	// runs out of memory. Default 1.2.
	KVOvercommit float64 `yaml:"kv_overcommit" default:"1.2"`
	// LongShare is the fraction of a worker's KV cache that long requests (over a quarter of it each) may hold
	// together, so that they cannot keep short ones out. One is always admitted, and its cached part does not
	// count. 1 means no bound. Default 0.5.
	LongShare float64 `yaml:"long_share" default:"0.5"`
	// OverlapWeight is the weight of a block to prefill in the policy overlap_cost, relative to a block held by
	// running requests: more favours cached prefixes, less an even batch. Default 1.
	OverlapWeight float64 `yaml:"overlap_weight" default:"1"`
	// Temperature is the randomness of the policy overlap_cost: at 1 the most expensive worker is chosen e
	// times as rarely as the cheapest. Default 0: always the cheapest.
	Temperature float64 `yaml:"temperature"`
	// Spill allows a region to forward to a peer. Default true.
	Spill *bool `yaml:"spill" default:"true"`
	// SpillMargin is how much lower the cost at a peer must be, RTT included, for a request to spill. Default
	// 20ms.
	SpillMargin Duration `yaml:"spill_margin" default:"20ms"`
	// SpillShare is the fraction of a peer's headroom that one region may spill into. It is the budget of the
	// pair of regions, in tokens/s, divided equally among the gateways, with a burst of one second. A request
	// that cannot be served in its own region is exempt. Default 0.5.
	SpillShare float64 `yaml:"spill_share" default:"0.5"`
	// SpillFresh is the maximum age of a peer's reported headroom for a request that could be served in its own
	// region. Default 3s: the global tier forwards it each second. While the global tier is silent, peers that
	// were healthy at its last report are still tried for ten minutes: they admit only requests that start
	// sooner there.
	SpillFresh Duration `yaml:"spill_fresh" default:"3s"`
	// MaxBody bounds the body of a request, in bytes. Default 8 MiB.
	MaxBody int64 `yaml:"max_body" default:"8388608"`
	// ExtraPaths are request paths and gRPC methods that are forwarded to workers in addition to the standard
	// inference paths (OpenAI's, Anthropic's /v1/messages, rerank, score, tokenize, KServe v2 infer and
	// generate, /v1/realtime); all others get 404. A path is "/api/chat" or "/package.Service/Method"; {name}
	// matches any one segment, a final * the rest. The model is read from the body's "model" or the header
	// x-model. Engines' own generation paths (/api/chat, /api/generate, /generate, /completion) can be added
	// with care: Ollama's keep_alive and options manage the worker. A wildcard must not match a management path
	// of an engine; such a path is forwarded only if written out. Default: none.
	ExtraPaths []string `yaml:"extra_paths"`
	// RetryBudget is the fraction of requests that may be tried a second time. Default 0.1.
	RetryBudget float64 `yaml:"retry_budget" default:"0.1"`
	// ResumeText is the longest text of a stream kept for resumption, in bytes. 0: no stream is resumed.
	// Default 262144.
	ResumeText *int `yaml:"resume_text" default:"262144"`
	// Hedge controls when local tiers send a request to a second worker.
	Hedge HedgePolicy `yaml:"hedge"`
	// UsageInStreams makes engines report the usage of every chat and completions stream, so that tenants'
	// tokens are counted and not estimated. It is removed for clients that did not ask for it. Default true.
	UsageInStreams *bool `yaml:"usage_in_streams" default:"true"`
	// Objectives are names for classes in the header x-gateway-inference-objective (or
	// x-llm-d-inference-objective), in addition to the classes' own names. A request never gets more than its
	// tenant's class, and an unknown name is ignored. Default: none.
	Objectives []ClassObjective `yaml:"objectives"`
	// Queue controls how requests wait at local tiers while no worker has capacity.
	Queue QueuePolicy `yaml:"queue"`
	// Health controls when local tiers eject a worker, and how it returns.
	Health HealthPolicy `yaml:"health"`
	// Batch controls how local tiers merge small requests into one call of a worker.
	Batch BatchPolicy `yaml:"batch"`
}

// ClassObjective is another name for a class.
type ClassObjective struct {
	// Name in the header of requests.
	Name string `yaml:"name"`
	// Class of these requests: interactive, standard or batch. Default standard.
	Class Class `yaml:"class" default:"standard"`
}

// BatchPolicy controls how local tiers merge embeddings and `infer` requests for one model into one call of a
// worker.
type BatchPolicy struct {
	// Enabled merges requests that differ only in their inputs. Default true.
	Enabled *bool `yaml:"enabled" default:"true"`
	// MaxSize bounds the inputs of one call. Default 64.
	MaxSize int `yaml:"max_size" default:"64"`
	// PreferredSizes are batch sizes that suit the engine, ascending: a call that is not full is rounded down
	// to one of them.
	PreferredSizes []int `yaml:"preferred_sizes"`
	// MaxDelay bounds how long a request waits for others while its model's workers are busy. An idle worker
	// never waits. Default 5ms.
	MaxDelay Duration `yaml:"max_delay" default:"5ms"`
	// MaxBytes bounds the bodies merged into one call, in bytes. Default 1 MiB.
	MaxBytes int64 `yaml:"max_bytes" default:"1048576"`
	// AcrossTenants lets requests of different tenants share a call, and identical ones a response. The call is
	// then queued for the tenant that came first. Default: requests of each tenant are merged separately.
	AcrossTenants bool `yaml:"across_tenants"`
	// InferModels are the models whose /v2/models/M/infer tensors have the batch as their first dimension.
	// Requests for other models are never merged, because their rows may not be a batch.
	InferModels []string `yaml:"infer_models"`
}

// LoadSource describes how workers obtain a model that they do not have.
type LoadSource struct {
	// Path is where engines find a LoRA adapter: a folder on the worker, or a name in a hub. Workers that serve
	// the parent load it at the first request. Empty: only workers that list the model have it.
	Path string `yaml:"path"`
}

// Autoscaling holds the parameters of the desired number of replicas of one model in one zone.
type Autoscaling struct {
	// Target is the intended utilization of a replica, 0..1. Default 0.7.
	Target float64 `yaml:"target" default:"0.7"`
	// Min is the minimum number of replicas. With 0 a model without recent requests gets none. Default 1.
	Min *int `yaml:"min" default:"1"`
	Max int  `yaml:"max"` // the maximum number of replicas; 0 means no bound
	// ColdStart is the time from the request for a new replica until it serves: demand is forecast this far
	// ahead. Default 2m.
	ColdStart Duration `yaml:"cold_start" default:"2m"`
	// ScaleDownAfter is how long fewer replicas must have been sufficient before the recommendation falls.
	// Default 5m.
	ScaleDownAfter Duration `yaml:"scale_down_after" default:"5m"`
}

// MinReplicas returns Min, or its default.
func (a *Autoscaling) MinReplicas() int {
	if a.Min == nil {
		return 1
	}
	return *a.Min
}
