package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/paths"
)

// WorkerPolicies returns the worker-choice policies allowed in routing.policy.
func WorkerPolicies() []string {
	return []string{
		"predictive", "round_robin", "weighted_round_robin", "random", "weighted_random", "power_of_two", "least_connections",
		"weighted_least_connections", "least_queue", "least_pending_tokens", "least_response_time", "gpu_utilization", "gpu_aware",
		"consistent_hash", "prefix_affinity", "sticky_until_saturated", "prequal", "lmetric",
		"cache_aware", "overlap_cost", "score_blend",
	}
}

// routingValidator checks routing and steering.
type routingValidator struct{ *validation }

func (v *routingValidator) checkPolicy() {
	v.checkSteering(&v.spec.Steering)
	r := &v.spec.Routing
	if !slices.Contains(WorkerPolicies(), r.Policy) {
		v.addProblem("$.routing.policy", fmt.Sprintf("unknown policy %q", r.Policy), strict.SuggestName(r.Policy, WorkerPolicies(), "policies"))
	}
	v.checkHashKey(r.HashKey)
	if !(r.KVOvercommit >= 0.5 && r.KVOvercommit <= 2) {
		v.addProblem("$.routing.kv_overcommit", fmt.Sprintf("kv_overcommit %v is out of range", r.KVOvercommit), "write a factor from 0.5 to 2, such as 1.2")
	}
	v.checkShare("$.routing.long_share", "long_share", r.LongShare)
	if !(r.OverlapWeight > 0 && r.OverlapWeight <= 100) {
		v.addProblem("$.routing.overlap_weight", fmt.Sprintf("overlap_weight %v is out of range", r.OverlapWeight), "write a factor over 0 and up to 100, such as 1; the policy least_connections counts no prefill at all")
	}
	if !(r.Temperature >= 0 && r.Temperature <= 10) {
		v.addProblem("$.routing.temperature", fmt.Sprintf("temperature %v is out of range", r.Temperature), "write 0 for always the least cost, or up to 10 for nearly by chance")
	}
	v.checkDuration("$.routing.spill_margin", "spill_margin", r.SpillMargin, 0, 10*time.Second)
	v.checkShare("$.routing.spill_share", "spill_share", r.SpillShare)
	v.checkDuration("$.routing.spill_fresh", "spill_fresh", r.SpillFresh, 100*time.Millisecond, 10*time.Second)
	if r.MaxBody < 1<<10 || r.MaxBody > 1<<30 {
		v.addProblem("$.routing.max_body", fmt.Sprintf("max_body %d is out of range", r.MaxBody), "write bytes, from 1024 to 1073741824")
	}
	v.checkExtraPaths(r.ExtraPaths)
	if n := r.ResumeText; n != nil && (*n < 0 || *n > 16<<20) {
		v.addProblem("$.routing.resume_text", fmt.Sprintf("resume_text %d is out of range", *n), "write bytes, up to 16777216; 0 resumes no stream")
	}
	v.checkShare("$.routing.retry_budget", "retry_budget", r.RetryBudget)
	v.checkQueue(&r.Queue)
	v.checkHealth(&r.Health)
	v.checkBatch(&r.Batch)
	v.checkHedge(&r.Hedge)
}

// checkExtraPaths checks routing.extra_paths.
func (v *routingValidator) checkExtraPaths(list []string) {
	const path = "$.routing.extra_paths"
	if len(list) > paths.MaxExtraPaths {
		v.addProblem(path, fmt.Sprintf("%d extra paths are too many", len(list)), fmt.Sprintf("write at most %d; a segment {name} or a last * takes several", paths.MaxExtraPaths))
	}
	for i, p := range list {
		if err := paths.CheckPattern(p); err != nil {
			v.addProblem(itemPath(path)(i), err.Error(), `write a path such as "/api/chat", "/v1/{name}/run", "/custom/*" or "/package.Service/Method"`)
		}
	}
	v.checkUnique("path", list, itemPath(path))
}

// maxBatchInputs bounds the inputs of one call: far more than any engine computes at once.
const maxBatchInputs = 4096

func (v *routingValidator) checkBatch(b *BatchPolicy) {
	const path = "$.routing.batch"
	if b.MaxSize < 1 || b.MaxSize > maxBatchInputs {
		v.addProblem(path+".max_size", fmt.Sprintf("max_size %d is out of range", b.MaxSize), fmt.Sprintf("write a number of inputs from 1 to %d, or enabled: false", maxBatchInputs))
	}
	last := 0
	for i, n := range b.PreferredSizes {
		if n <= last || n > b.MaxSize {
			v.addProblem(fmt.Sprintf("%s.preferred_sizes[%d]", path, i), fmt.Sprintf("preferred size %d is out of order or out of range", n),
				fmt.Sprintf("write sizes from 1 to max_size (%d), each greater than the one before", b.MaxSize))
			break
		}
		last = n
	}
	v.checkDuration(path+".max_delay", "max_delay", b.MaxDelay, 100*time.Microsecond, time.Second)
	if b.MaxBytes < 1<<10 || b.MaxBytes > 64<<20 {
		v.addProblem(path+".max_bytes", fmt.Sprintf("max_bytes %d is out of range", b.MaxBytes), "write bytes, from 1024 to 67108864")
	}
	models := path + ".infer_models"
	v.checkReferences("model", "$.models[*].name", b.InferModels, v.models, itemPath(models))
	v.checkUnique("model", b.InferModels, itemPath(models))
}

func (v *routingValidator) checkSteering(s *Steering) {
	const path = "$.steering"
	v.checkDuration(path+".interval", "interval", s.Interval, 100*time.Millisecond, time.Minute)
	if !(s.DeadBand >= 0 && s.DeadBand < 1) {
		v.addProblem(path+".dead_band", fmt.Sprintf("dead_band %v is out of range", s.DeadBand), "write a relative gain from 0 up to 1, such as 0.05")
	}
	v.checkShare(path+".max_step", "max_step", s.MaxStep)
	v.checkShare(path+".min_shift", "min_shift", s.MinShift)
	v.checkShare(path+".slew", "slew", s.Slew)
	if s.Ramp != nil {
		v.checkDuration(path+".ramp", "ramp", *s.Ramp, 0, time.Hour)
	}
	if s.DrainGuard != nil && !(*s.DrainGuard >= 0 && *s.DrainGuard <= 0.5) {
		v.addProblem(path+".drain_guard", fmt.Sprintf("drain_guard %v is out of range", *s.DrainGuard), "write a part of all capacity from 0 (never) to 0.5")
	}
	for _, c := range []struct {
		key string
		n   *int
	}{{"drain_min_regions", s.DrainMinRegions}, {"drain_min_zones", s.DrainMinZones}} {
		if c.n != nil && !(*c.n >= 0 && *c.n <= 256) {
			v.addProblem(path+"."+c.key, fmt.Sprintf("%s %d is out of range", c.key, *c.n), "write a number from 0 (a drain may leave none) to 256")
		}
	}
	if c := s.DrainMinCapacity; c != nil && !(*c >= 0 && *c <= 1) {
		v.addProblem(path+".drain_min_capacity", fmt.Sprintf("drain_min_capacity %v is out of range", *c), "write a part of the capacity from 0 (a drain may leave none) to 1")
	}
	if !(s.DollarMS >= 0 && s.DollarMS <= 10_000) {
		v.addProblem(path+".dollar_ms", fmt.Sprintf("dollar_ms %v is out of range", s.DollarMS), "write milliseconds from 0 (money does not count) to 10000")
	}
}

// checkHashKey checks routing.hash_key.
func (v *routingValidator) checkHashKey(s string) {
	const path = "$.routing.hash_key"
	name, ok := strings.CutPrefix(s, HashKeyHeader)
	switch {
	case ok && !isToken(name):
		v.addProblem(path, fmt.Sprintf("hash_key names the malformed header %q", name), `write a header's name after "header:", such as "header:X-Conversation"`)
	case !ok && s != HashKeySession && s != HashKeyTenant && s != HashKeyPrefix:
		v.addProblem(path, fmt.Sprintf("unknown hash_key %q", s), strict.SuggestName(s, []string{HashKeySession, HashKeyTenant, HashKeyPrefix, HashKeyHeader + "NAME"}, "keys"))
	}
}

func (v *routingValidator) checkHedge(h *HedgePolicy) {
	v.checkDuration("$.routing.hedge.after", "after", h.After, 10*time.Millisecond, time.Minute)
	v.checkNumber("$.routing.hedge.quantile", "quantile", h.Quantile, 0.5, 0.999)
}

func (v *routingValidator) checkObjectives() {
	const path = "$.routing.objectives"
	list := v.spec.Routing.Objectives
	if len(list) > MaxObjectives {
		v.addProblem(path, fmt.Sprintf("there are %d objectives, more than %d", len(list), MaxObjectives), "name only those that requests use")
	}
	for i := range list {
		o := &list[i]
		if why := nameProblem(o.Name); why != "" {
			v.addProblem(itemPath(path)(i)+".name", "objective: "+why, nameHint)
		}
		if o.Class >= NumClasses {
			v.addProblem(itemPath(path)(i)+".class", fmt.Sprintf("unknown class %s", o.Class), "write interactive, standard or batch")
		}
	}
	v.checkUnique("objective", namesOf(list, func(o *ClassObjective) string { return o.Name }), itemNamePath(path))
}

func (v *routingValidator) checkQueue(q *QueuePolicy) {
	const path = "$.routing.queue"
	v.checkInteger(path+".max_requests", "max_requests", int64(q.MaxRequests), 1, 1<<20)
	v.checkInteger(path+".max_bytes", "max_bytes", q.MaxBytes, 1<<16, 1<<36)
	for c, s := range q.ClassShares.ByClass() {
		v.checkShare(path+".class_shares."+Class(c).String(), "the "+Class(c).String()+" share", s)
	}
	v.checkShare(path+".tenant_share", "tenant_share", q.TenantShare)
	for c, w := range q.Weights.ByClass() {
		v.checkNumber(path+".weights."+Class(c).String(), "the "+Class(c).String()+" weight", w, 0.001, 1000)
	}
	v.checkDuration(path+".aging", "aging", q.Aging, 10*time.Millisecond, time.Hour)
	v.checkNumber(path+".shed_from", "shed_from", q.ShedFrom, 0.01, 10)
}

func (v *routingValidator) checkHealth(h *HealthPolicy) {
	const path = "$.routing.health"
	v.checkInteger(path+".failures", "failures", int64(h.Failures), 1, 1000)
	v.checkDuration(path+".backoff", "backoff", h.Backoff, 10*time.Millisecond, 10*time.Minute)
	v.checkDuration(path+".max_backoff", "max_backoff", h.MaxBackoff, time.Duration(h.Backoff), time.Hour)
	v.checkDuration(path+".quarantine", "quarantine", h.Quarantine, time.Second, time.Hour)
	v.checkDuration(path+".slow_start", "slow_start", h.SlowStart, time.Millisecond, time.Hour)
	v.checkDuration(path+".stall", "stall", h.Stall, time.Second, time.Hour)
	if h.DeepProbe != 0 {
		v.checkDuration(path+".deep_probe", "deep_probe", h.DeepProbe, time.Second, 24*time.Hour)
	}
	v.checkShare(path+".max_ejected", "max_ejected", h.MaxEjected)
	v.checkShare(path+".panic", "panic", h.Panic)
	v.checkShare(path+".error_rate", "error_rate", h.ErrorRate)
	v.checkNumber(path+".slow_factor", "slow_factor", h.SlowFactor, 1.5, 1000)
	v.checkDuration(path+".drain_deadline", "drain_deadline", h.DrainDeadline, time.Second, 7*24*time.Hour)
}
