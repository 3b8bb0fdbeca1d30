package drill

import (
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
)

func checkOneEnd(r *runFacts, c *invariantCount) {
	for _, q := range r.requests {
		c.compare(1, q.ends == 1, "request %d, due at %s, has %d terminal events", q.id, formatMoment(q.due), q.ends)
	}
}

func checkNoSecondExecution(r *runFacts, c *invariantCount) {
	begun := map[uint64]bool{}
	for i := range r.log.Events {
		e := &r.log.Events[i]
		switch e.Kind {
		case FirstToken:
			begun[e.Request] = true
		case AttemptStarted:
			c.compare(1, !begun[e.Request] || e.Number > 0, "request %d was executed again from its start at %s, %s after its first byte", e.Request, e.Node, formatMoment(e.At))
		}
	}
}

func checkTokensOnce(r *runFacts, c *invariantCount) {
	for _, q := range r.requests {
		if q.outcome == outcomeOK && q.asked > 0 {
			c.compare(1, q.got == q.asked, "request %d asked for %d tokens and received %d", q.id, q.asked, q.got)
		}
	}
}

// checkDrainCutsNothing: streams at a drained place are cut by other faults only.
func checkDrainCutsNothing(r *runFacts, c *invariantCount) {
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if s.Kind != DrainKind {
			continue
		}
		for _, q := range r.requests {
			at := strings.ReplaceAll(q.worker, "/", "-")
			inside := strings.HasPrefix(at, strings.ReplaceAll(s.Target, "/", "-"))
			if !inside || q.end < s.At || q.due > s.End() || r.isDisturbed(q, s) {
				continue
			}
			c.compare(1, q.outcome != "cut", "request %d at %s was cut at %s, during the drain of %s", q.id, q.worker, formatMoment(q.end), s.Target)
		}
	}
}

// isDisturbed reports whether another fault than a drain was active during a request.
func (r *runFacts) isDisturbed(q *requestRecord, drain *Step) bool {
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if s != drain && s.Kind != DrainKind && s.Kind != SurgeKind && q.due < s.End() && q.end > s.At {
			return true
		}
	}
	return false
}

func checkCache(r *runFacts, c *invariantCount) {
	r.eachEvent(CacheUsage, func(e *Event) {
		c.compare(max(e.Count, 1), float64(e.Number) <= e.Value, "%s uses %d of %.0f cache blocks at %s", e.Node, e.Number, e.Value, formatMoment(e.At))
	})
}

func checkQueues(r *runFacts, c *invariantCount) {
	r.eachEvent(QueueLength, func(e *Event) {
		c.compare(1, float64(e.Number) <= e.Value, "%d requests wait in %s at %s, and the bound is %.0f", e.Number, e.Node, formatMoment(e.At), e.Value)
	})
}

// maxWait is the longest that a request may wait before its first attempt: ten times the TTFT target of the slowest class
// is 60 s in the default spec; a second is added for the network.
const maxWait = 61.0

func checkWaits(r *runFacts, c *invariantCount) {
	started := map[uint64]bool{}
	r.eachEvent(AttemptStarted, func(e *Event) {
		if !started[e.Request] {
			started[e.Request] = true
			c.compare(1, e.Value <= maxWait, "request %d was started %.1f s after it was due", e.Request, e.Value)
		}
	})
}

func checkTenantIsolation(r *runFacts, c *invariantCount) {
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if s.Kind != SurgeKind {
			continue
		}
		for _, t := range []string{mainTenant, batchTenant} {
			if t == s.Target {
				continue
			}
			before, after, ok := r.compareSlice(Slice{Tenant: t}, "ttft p99", s.At, s.End())
			if ok {
				c.compare(1, after <= before*1.2, "the surge of %s moved the TTFT p99 of %s from %.0f to %.0f ms", s.Target, t, 1000*before, 1000*after)
			}
		}
	}
}

// compareSlice measures a figure before the first fault and between two times.
func (r *runFacts) compareSlice(s Slice, metric string, from, to time.Duration) (before, between float64, ok bool) {
	m, _ := findMetric(metric)
	before, ok1 := m.measure(phaseRequests(r.file, r.requests, s, PhaseBefore))
	between, ok2 := m.measure(selectRequests(r.requests, s, from, to))
	return before, between, ok1 && ok2
}

// retryShare is the retry budget, as a share of requests.
const retryShare = 0.10

// checkRetryBudget counts further attempts before the first byte, over the whole run: attempts that resume a stream are not retries.
func checkRetryBudget(r *runFacts, c *invariantCount) {
	attempts, further := map[uint64]int{}, 0
	r.eachEvent(AttemptStarted, func(e *Event) {
		if attempts[e.Request]++; attempts[e.Request] > 1 && e.Number == 0 {
			further++
		}
	})
	if n := len(attempts); n > 0 {
		c.compare(n, float64(further) <= retryShare*float64(n), "%d further attempts for %d requests", further, n)
	}
}

func checkCancels(r *runFacts, c *invariantCount) {
	r.eachEvent(CancelSeen, func(e *Event) {
		c.compare(1, e.Value <= 1, "the cancellation of request %d took %.1f s to %s", e.Request, e.Value, e.Node)
	})
}

func checkBreakers(r *runFacts, c *invariantCount) {
	r.eachEvent(ProbeSent, func(e *Event) {
		c.compare(1, e.Count <= 1, "%d probes at a time at %s", e.Count, e.Node)
	})
}

// isTelemetryCut reports whether a step cuts the reports of a region from some of the global nodes, and nothing else. A cut from all of
// them is not one: what no observer reaches counts as lost, and leaves the answers within 2 s (failure rules of the design). Nothing
// that the global tier receives distinguishes it from the loss of a region.
func isTelemetryCut(s *Step) bool {
	return s.Kind == fault.Partition && s.Params["class"] == "uplink" && s.Scope == fault.ScopeRegion && !silencesRegion(s)
}

// checkStaticStability: while any global node receives the reports of a region, the first answers of all of them after the cut still
// name it.
func checkStaticStability(r *runFacts, c *invariantCount) {
	const atOnce = 2 * time.Second
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if !isTelemetryCut(s) {
			continue
		}
		nodes := map[string]bool{}
		r.eachEvent(DNSAnswered, func(e *Event) {
			if e.At < s.At && e.Text == s.Target && e.Target == s.Target {
				nodes[e.Node] = true
			}
		})
		r.eachEvent(DNSAnswered, func(e *Event) {
			if e.At >= s.At && e.At < s.At+atOnce && e.Text == s.Target && nodes[e.Node] {
				c.compare(max(e.Count, 1), e.Target == s.Target, "%s sent clients of %s to %s %s after the loss of its reports", e.Node, e.Text, e.Target, formatMoment(e.At-s.At))
			}
		})
	}
}

// livenessShare is the share of the goodput before the fault that must be back.
const livenessShare = 0.95

func checkLiveness(r *runFacts, c *invariantCount) {
	from, to := phaseTimes(r.file, PhaseAfter)
	if to-from < time.Second {
		return
	}
	if before, after, ok := r.compareSlice(Slice{}, "goodput", from, to); ok {
		c.compare(1, after >= livenessShare*before, "goodput is %.1f %% after the recovery and was %.1f %% before", 100*after, 100*before)
	}
	late := lastBehind(r.log, from, to)
	c.compare(1, late == 0, "a node serves an older epoch than another one at %s", formatMoment(late))
}

func checkControls(r *runFacts, c *invariantCount) {
	for _, k := range r.file.Controls {
		if before, during, ok := r.compareSlice(k.Slice, k.Metric, r.fault, r.clear); ok {
			c.compare(1, withinShare(before, during, k.Within), "%s of %swas %.4g before and %.4g during", k.Metric, formatSlice(k.Slice), before, during)
		}
	}
}

// withinShare reports whether a figure changed by at most a share of itself.
func withinShare(before, now, share float64) bool {
	return now-before <= share*before && before-now <= share*before
}

// cutPath divides region/zone/worker.
func cutPath(p string) (region, zone, worker string) {
	region, rest, _ := strings.Cut(p, "/")
	zone, worker, _ = strings.Cut(rest, "/")
	return region, zone, worker
}
