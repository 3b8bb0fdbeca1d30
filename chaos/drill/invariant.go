package drill

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// InvariantStatus is the result of an invariant.
type InvariantStatus string

// The results. Only InvariantHeld counts as passed.
const (
	InvariantHeld   InvariantStatus = "held"
	InvariantBroken InvariantStatus = "broken"
	// NotObservable: the observers of this run cannot record what the invariant is about.
	NotObservable InvariantStatus = "not observable here"
	// NothingToCheck: they can, and nothing of the kind happened in this run.
	NothingToCheck InvariantStatus = "nothing to check"
)

// InvariantResult is an invariant in one run.
type InvariantResult struct {
	ID     string          `json:"id"`
	Title  string          `json:"title"`
	Status InvariantStatus `json:"status"`
	// Checked counts the facts that were compared, Violations those that broke it.
	Checked    int `json:"checked"`
	Violations int `json:"violations"`
	// First describes the first violation.
	First string `json:"first,omitempty"`
}

// invariantInfo is one invariant of reference 3.4.
type invariantInfo struct {
	id, title string
	needs     []EventKind
	check     func(*runFacts, *invariantCount)
}

// invariantCount counts what an invariant has compared.
type invariantCount struct {
	checked, violations int
	first               string
}

// compare counts n facts, and a violation unless they hold.
func (c *invariantCount) compare(n int, holds bool, format string, args ...any) {
	c.checked += n
	if holds {
		return
	}
	if c.violations == 0 {
		c.first = fmt.Sprintf(format, args...)
	}
	c.violations++
}

// runFacts is what all invariants read: the log, and what follows from it.
type runFacts struct {
	file     *DrillFile
	log      *EventLog
	requests []*requestRecord
	down     nodeDowns
	fault    time.Duration
	clear    time.Duration
}

func newRunFacts(f *DrillFile, l *EventLog) *runFacts {
	return &runFacts{file: f, log: l, requests: collectRequests(l), down: downTimes(l), fault: f.FirstFault(), clear: f.LastClear()}
}

// eachEvent calls a function for every event of a kind.
func (r *runFacts) eachEvent(kind EventKind, f func(*Event)) {
	for i := range r.log.Events {
		if r.log.Events[i].Kind == kind {
			f(&r.log.Events[i])
		}
	}
}

// CheckInvariants checks every invariant, in order.
func CheckInvariants(f *DrillFile, l *EventLog) (out []InvariantResult) {
	facts := newRunFacts(f, l)
	for _, in := range invariantTable {
		res := InvariantResult{ID: in.id, Title: in.title, Status: NotObservable}
		if l.CanObserve(in.needs...) {
			var c invariantCount
			in.check(facts, &c)
			res.Checked, res.Violations, res.First = c.checked, c.violations, c.first
			switch {
			case c.violations > 0:
				res.Status = InvariantBroken
			case c.checked == 0:
				res.Status = NothingToCheck
			default:
				res.Status = InvariantHeld
			}
		}
		out = append(out, res)
	}
	return out
}

var invariantTable = []invariantInfo{
	{"I-1", "every well-formed DNS query gets an answer in time from every node that is up", []EventKind{DNSAnswered, DNSFailed, NodeState}, checkDNSAnswers},
	{"I-2", "no answer names a region that is drained or lost, longer than the bound", []EventKind{DNSAnswered, NodeState}, checkNoBrokenRegion},
	{"I-3", "the epochs that a node serves never decrease", []EventKind{DNSAnswered, PlanApplied}, checkEpochsRise},
	{"I-4", "nodes that serve the same epoch serve the same plan", []EventKind{PlanApplied}, checkPlanHashes},
	{"I-5", "no name ever has zero answers", []EventKind{DNSAnswered}, checkNoEmptyAnswer},
	{"I-6", "equal applied indexes have equal state hashes on all nodes", []EventKind{StateHash}, checkStateHashes},
	{"I-7", "an acknowledged admin write is never lost", []EventKind{WriteAcked, WriteMissing}, checkWrites},
	{"I-8", "at most one leader in a term", []EventKind{TermSeen}, checkOneLeader},
	{"I-9", "no request is served outside its tenant's residency", []EventKind{RequestEnded, ResidencyKnown}, checkResidency},
	{"I-10", "the ECS scope of an answer covers the prefix that decided it", []EventKind{ScopeReturned}, checkScopes},
	{"I-11", "shares of answers converge to the plan's weights within 2 points", []EventKind{ShareMeasured}, checkShares},
	{"I-12", "each admitted request has exactly one terminal event", []EventKind{RequestDue, RequestEnded}, checkOneEnd},
	{"I-13", "no request is executed again from its start after its first byte", []EventKind{AttemptStarted, FirstToken}, checkNoSecondExecution},
	{"I-14", "a complete answer has exactly the tokens that were asked for, also after it was resumed", []EventKind{RequestDue, RequestEnded}, checkTokensOnce},
	{"I-15", "a drain alone cuts no stream", []EventKind{RequestEnded, DrainAcked}, checkDrainCutsNothing},
	{"I-16", "admitted KV tokens never exceed a worker's memory", []EventKind{CacheUsage}, checkCache},
	{"I-17", "no queue is longer than its bound", []EventKind{QueueLength}, checkQueues},
	{"I-18", "no request is started after its wait has ended", []EventKind{AttemptStarted}, checkWaits},
	{"I-19", "one tenant's surge moves another's TTFT p99 by at most 20 %", []EventKind{RequestDue, RequestEnded}, checkTenantIsolation},
	{"I-20", "further attempts are at most 10 % of the requests, also while a region is down", []EventKind{AttemptStarted}, checkRetryBudget},
	{"I-21", "a client's cancellation reaches the worker within 1 s", []EventKind{CancelSeen}, checkCancels},
	{"I-22", "a half-open breaker sends one probe at a time", []EventKind{ProbeSent}, checkBreakers},
	{"I-23", "a loss of reports at some global nodes removes no region from DNS at once", []EventKind{DNSAnswered, SummaryAge}, checkStaticStability},
	{"I-24", "200 reconnections are over in 5 s", []EventKind{StormEnded}, checkStorm},
	{"I-25", "memory and goroutines return to their base", []EventKind{ProcessUsage}, checkResources},
	{"I-26", "every component stops within 10 s", []EventKind{ProcessStopped}, checkStops},
	{"I-27", "a summary that names another node than its certificate is dropped", []EventKind{SummaryRejected}, checkForeignSummaries},
	{"I-28", "no key is in logs, metrics or state", []EventKind{SecretFound, SecretsChecked}, checkSecrets},
	{"I-29", "a DNS answer over UDP is at most three times its query", []EventKind{SizeReturned}, checkAmplification},
	{"I-30", "an expired, revoked or wrong certificate is refused", []EventKind{CertificateUsed}, checkCertificates},
	{"I-31", "within 30 s of the clearing all nodes serve the latest epoch and goodput is at least 95 % of before", []EventKind{RequestEnded, DNSAnswered, FaultCleared}, checkLiveness},
	{"I-32", "slices that the fault does not touch keep their figures", []EventKind{RequestDue, RequestEnded}, checkControls},
}

// answerBound is the longest time of an answer of a node on the same machine.
const answerBound = 0.020

func checkDNSAnswers(r *runFacts, c *invariantCount) {
	r.eachEvent(DNSAnswered, func(e *Event) {
		c.compare(max(e.Count, 1), e.Latency <= answerBound, "%s answered clients of %s after %.0f ms at %s", e.Node, e.Text, 1000*e.Latency, formatMoment(e.At))
	})
	r.eachEvent(DNSFailed, func(e *Event) {
		if !r.down.isDown(e.Node, e.At) {
			c.compare(1, false, "%s did not answer clients of %s at %s %s", e.Node, e.Text, formatMoment(e.At), e.Code)
		}
	})
}

// Bounds of I-2: a drain takes effect within planPushBound of its acknowledgement, a loss within lossBound unless the file has an
// objective.
const (
	planPushBound = 2 * time.Second
	lossBound     = 5 * time.Second
)

func checkNoBrokenRegion(r *runFacts, c *invariantCount) {
	for i := range r.file.Steps {
		s := &r.file.Steps[i]
		if !takesRegionAway(s) {
			continue
		}
		bound := lossBound
		if s.Kind == DrainKind {
			bound = planPushBound
			if over, err := time.ParseDuration(s.Params["over"]); err == nil {
				bound += over
			}
		}
		for _, o := range r.file.Objectives {
			if o.Rung == RungDNS {
				bound = o.Bound
			}
		}
		r.eachEvent(DNSAnswered, func(e *Event) {
			if e.At >= s.At+bound && e.At < s.End() && !r.down.isDown(e.Node, e.At) {
				c.compare(max(e.Count, 1), e.Target != s.Target, "%s sent clients of %s to %s at %s, %s after it was lost or drained", e.Node, e.Text, s.Target, formatMoment(e.At), formatMoment(e.At-s.At))
			}
		})
	}
}

func checkEpochsRise(r *runFacts, c *invariantCount) {
	last := map[string]uint64{}
	for i := range r.log.Events {
		e := &r.log.Events[i]
		if e.Kind != DNSAnswered && e.Kind != PlanApplied {
			continue
		}
		c.compare(1, e.Number >= last[e.Node], "%s went back from epoch %d to %d at %s", e.Node, last[e.Node], e.Number, formatMoment(e.At))
		last[e.Node] = e.Number
	}
}

func checkPlanHashes(r *runFacts, c *invariantCount) {
	hashes := map[uint64]string{}
	r.eachEvent(PlanApplied, func(e *Event) {
		if e.Text == "" {
			return // the observer reads no hash
		}
		if was, ok := hashes[e.Number]; ok {
			c.compare(1, was == e.Text, "epoch %d has hash %s at %s and %s elsewhere", e.Number, e.Text, e.Node, was)
			return
		}
		hashes[e.Number] = e.Text
	})
}

func checkNoEmptyAnswer(r *runFacts, c *invariantCount) {
	r.eachEvent(DNSAnswered, func(e *Event) {
		c.compare(max(e.Count, 1), e.Target != "", "%s gave clients of %s no address at %s", e.Node, e.Text, formatMoment(e.At))
	})
}

func checkStateHashes(r *runFacts, c *invariantCount) {
	hashes := map[uint64]string{}
	r.eachEvent(StateHash, func(e *Event) {
		if was, ok := hashes[e.Number]; ok {
			c.compare(1, was == e.Text, "index %d has hash %s at %s and %s elsewhere", e.Number, e.Text, e.Node, was)
			return
		}
		hashes[e.Number] = e.Text
	})
}

func checkWrites(r *runFacts, c *invariantCount) {
	r.eachEvent(WriteAcked, func(*Event) { c.checked++ })
	r.eachEvent(WriteMissing, func(e *Event) {
		c.compare(0, false, "version %d of %s was acknowledged and is missing", e.Number, e.Text)
	})
}

func checkOneLeader(r *runFacts, c *invariantCount) {
	leaders := map[uint64]string{}
	r.eachEvent(TermSeen, func(e *Event) {
		was, ok := leaders[e.Number]
		c.compare(1, !ok || was == e.Node, "term %d has the leaders %s and %s", e.Number, was, e.Node)
		leaders[e.Number] = e.Node
	})
}

func checkResidency(r *runFacts, c *invariantCount) {
	allowed := map[string][]string{}
	r.eachEvent(ResidencyKnown, func(e *Event) { allowed[e.Text] = strings.Split(e.Target, ",") })
	for _, q := range r.requests {
		regions, bound := allowed[q.tenant]
		if !bound || q.worker == "" {
			continue
		}
		region, _, _ := cutPath(q.worker)
		c.compare(1, slices.Contains(regions, region), "request %d of %s was served in %s", q.id, q.tenant, region)
	}
}

func checkScopes(r *runFacts, c *invariantCount) {
	r.eachEvent(ScopeReturned, func(e *Event) {
		holds := e.Value >= float64(e.Count)
		if e.Number == 0 {
			holds = e.Value < 0
		}
		c.compare(1, holds, "%s answered a query of prefix length %d with scope %.0f, and decided by %d", e.Node, e.Number, e.Value, e.Count)
	})
}

func checkShares(r *runFacts, c *invariantCount) {
	r.eachEvent(ShareMeasured, func(e *Event) {
		off := e.Value - e.TTFT
		c.compare(1, off <= .02 && off >= -.02, "%s got %.1f %% of %d answers, and the plan has %.1f %%", e.Target, 100*e.Value, e.Number, 100*e.TTFT)
	})
}
