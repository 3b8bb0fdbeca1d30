package drill

import (
	"slices"
	"time"
)

// metricInfo is a figure of requests.
type metricInfo struct {
	name string
	unit string // "%" or "s"
	// measure computes the figure; false: there is no value.
	measure func([]*requestRecord) (float64, bool)
}

var metricTable = []metricInfo{
	{"goodput", "%", shareOf(func(r *requestRecord) bool { return r.good })},
	{"completed", "%", shareOf(func(r *requestRecord) bool { return r.outcome == outcomeOK })},
	{"refused", "%", shareOf(func(r *requestRecord) bool { return r.outcome == "refused" })},
	{"cut", "%", shareOf(func(r *requestRecord) bool { return r.outcome == "cut" })},
	{"ttft p50", "s", quantileOf(.5, func(r *requestRecord) float64 { return r.ttft })},
	{"ttft p99", "s", quantileOf(.99, func(r *requestRecord) float64 { return r.ttft })},
	{"tpot p50", "s", quantileOf(.5, func(r *requestRecord) float64 { return r.tpot })},
	{"tpot p99", "s", quantileOf(.99, func(r *requestRecord) float64 { return r.tpot })},
}

// outcomeOK is the outcome of a request with a complete answer.
const outcomeOK = "ok"

// MetricNames lists the figures that conditions may name.
func MetricNames() (out []string) {
	for _, m := range metricTable {
		out = append(out, m.name)
	}
	return out
}

func findMetric(name string) (metricInfo, bool) {
	i := slices.IndexFunc(metricTable, func(m metricInfo) bool { return m.name == name })
	if i < 0 {
		return metricInfo{}, false
	}
	return metricTable[i], true
}

// requestRecord is one request of a log, from when it was due to its end.
type requestRecord struct {
	id             uint64
	due, end       time.Duration
	region, tenant string // of its client
	outcome, code  string
	worker         string
	ttft, tpot     float64 // seconds; 0: none
	asked, got     uint64  // tokens
	good           bool
	ends           int // terminal events
}

// collectRequests reads the requests of a log, in order of their due times. A request without an end is unfinished.
func collectRequests(l *EventLog) []*requestRecord {
	byID := map[uint64]*requestRecord{}
	var out []*requestRecord
	for i := range l.Events {
		e := &l.Events[i]
		switch e.Kind {
		case RequestDue:
			r := &requestRecord{id: e.Request, due: e.At, region: e.Target, tenant: e.Text, asked: e.Number, outcome: "unfinished"}
			byID[e.Request], out = r, append(out, r)
		case RequestEnded:
			if r := byID[e.Request]; r != nil {
				r.ends++
				r.end, r.outcome, r.code, r.worker, r.ttft, r.tpot, r.got, r.good = e.At, e.Text, e.Code, e.Node, e.TTFT, e.TPOT, e.Number, e.Good
			}
		}
	}
	return out
}

// selectRequests are those of a slice that were due from one time to before another.
func selectRequests(all []*requestRecord, s Slice, from, to time.Duration) (out []*requestRecord) {
	for _, r := range all {
		if r.due >= from && r.due < to && (s.Region == "" || r.region == s.Region) && (s.Tenant == "" || r.tenant == s.Tenant) {
			out = append(out, r)
		}
	}
	return out
}

// shareOf is a metric: the share of all requests that were due, refused ones counted.
func shareOf(counts func(*requestRecord) bool) func([]*requestRecord) (float64, bool) {
	return func(list []*requestRecord) (float64, bool) {
		n := 0
		for _, r := range list {
			if counts(r) {
				n++
			}
		}
		return float64(n) / float64(max(len(list), 1)), len(list) > 0
	}
}

// quantileOf is a metric: a quantile of the complete answers.
func quantileOf(q float64, value func(*requestRecord) float64) func([]*requestRecord) (float64, bool) {
	return func(list []*requestRecord) (float64, bool) {
		var all []float64
		for _, r := range list {
			if r.outcome == outcomeOK && value(r) > 0 {
				all = append(all, value(r))
			}
		}
		if len(all) == 0 {
			return 0, false
		}
		slices.Sort(all)
		return all[min(int(q*float64(len(all))), len(all)-1)], true
	}
}

// phaseTimes are the bounds of a phase in a run.
func phaseTimes(f *DrillFile, p RunPhase) (from, to time.Duration) {
	switch p {
	case PhaseBefore:
		return f.Load.WarmUp, f.FirstFault()
	case PhaseDuring:
		return f.FirstFault(), f.LastClear()
	}
	return min(f.LastClear()+RecoveryTime, f.Load.Duration), f.Load.Duration
}

// phaseRequests are the requests of a slice in a phase, by the time when they were due. Those that were running when the
// first fault was injected belong to PhaseDuring: it may have harmed them.
func phaseRequests(f *DrillFile, all []*requestRecord, s Slice, p RunPhase) (out []*requestRecord) {
	from, to := phaseTimes(f, p)
	fault := f.FirstFault()
	for _, r := range selectRequests(all, s, f.Load.WarmUp, f.Load.Duration+1) {
		running := r.due < fault && (r.ends == 0 || r.end >= fault)
		switch {
		case p == PhaseBefore && running:
		case p == PhaseDuring && running, r.due >= from && r.due < to:
			out = append(out, r)
		}
	}
	return out
}
