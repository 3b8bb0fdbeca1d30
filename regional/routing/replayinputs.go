package routing

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
)

// Kinds of state records.
const (
	stateSummary = 1 // number, summary
	stateView    = 2 // number, view; it refers to summaries by their numbers
)

const (
	// maxInputBytes bounds the inputs of one decision, in bytes. A longer one, of hundreds of zones, is recorded without them.
	maxInputBytes = 7 << 10
	// maxReplayList bounds each list that a replay reads.
	maxReplayList = 4096
)

// inputRecorder records what decisions are made from, so that they can be replayed. Views and summaries are recorded once, when a
// decision first uses them.
type inputRecorder struct {
	pcg       *rand.PCG      // the source of the router's random numbers
	states    *decision.Ring // views and summaries
	view      *RoutingView   // the last one recorded
	views     uint64         // their count
	summaries map[*capacity.Summary]uint64
	count     uint64 // of summaries
	random    []byte // state of pcg before the present choice
	drainDraw float64
}

// RestartInputs makes the next decision record its view again, for the beginning of a file.
func (r *Router) RestartInputs() {
	if r.inputs != nil {
		r.inputs.view, r.inputs.summaries = nil, nil
	}
}

// States returns the log of what decisions were made from, nil when it is not kept.
func (r *Router) States() *decision.Ring {
	if r.inputs == nil {
		return nil
	}
	return r.inputs.states
}

// beginChoice notes what the choice itself changes.
func (x *inputRecorder) beginChoice(q *RouteQuery) {
	x.random, _ = x.pcg.AppendBinary(x.random[:0]) // never fails
	x.drainDraw = q.drainDraw
}

// recordView records a view and those of its summaries that are new.
func (x *inputRecorder) recordView(v *RoutingView, now time.Time) {
	if x.view == v {
		return
	}
	known := make(map[*capacity.Summary]uint64, len(v.Locals)+len(v.Peers))
	x.views++
	b := decision.AppendUint([]byte{stateView}, x.views)
	b = decision.AppendUint(decision.AppendBool(b, v.Drained), uint64(len(v.Locals)))
	for i := range v.Locals {
		l := &v.Locals[i]
		b = decision.AppendUint(b, x.recordSummary(l.Summary, known, now))
		b = decision.AppendBool(append(b, byte(l.State)), l.Drained)
		b = decision.AppendFloat(decision.AppendFloat(b, l.DrainedShare), l.Weight)
	}
	b = decision.AppendUint(b, uint64(len(v.Peers)))
	for i := range v.Peers {
		b = x.appendPeer(b, &v.Peers[i], known, now)
	}
	x.view, x.summaries = v, known
	x.states.AddRecord(&decision.Record{Event: decision.EventState, At: now, Inputs: b})
}

func (x *inputRecorder) appendPeer(b []byte, p *PeerRegion, known map[*capacity.Summary]uint64, now time.Time) []byte {
	b = decision.AppendUint(decision.AppendText(b, p.Region), x.recordSummary(p.Summary, known, now))
	b = decision.AppendInt(append(b, byte(p.State)), int64(p.RTT))
	b = appendTexts(decision.AppendBool(decision.AppendBool(b, p.Drained), p.Unreported), p.Residency)
	b = decision.AppendUint(b, uint64(len(p.Gateways)))
	for _, g := range p.Gateways {
		b = decision.AppendText(decision.AppendText(b, g.Name), g.Endpoint)
	}
	return b
}

// recordSummary records a summary unless it is, and returns its number; 0 for none.
func (x *inputRecorder) recordSummary(s *capacity.Summary, known map[*capacity.Summary]uint64, now time.Time) uint64 {
	if s == nil {
		return 0
	}
	if n := x.summaries[s]; n != 0 {
		known[s] = n
		return n
	}
	text, err := capacity.EncodeSummary(s)
	if err != nil {
		return 0
	}
	x.count++
	known[s] = x.count
	x.states.AddRecord(&decision.Record{Event: decision.EventState, At: now, Inputs: append(decision.AppendUint([]byte{stateSummary}, x.count), text...)})
	return x.count
}

func appendTexts(b []byte, list []string) []byte {
	b = decision.AppendUint(b, uint64(len(list)))
	for _, s := range list {
		b = decision.AppendText(b, s)
	}
	return b
}

func takeTexts(r *decision.Reader) (out []string) {
	for range r.TakeLen(maxReplayList) {
		out = append(out, r.TakeText())
	}
	return out
}

// appendInputs appends what a decision was made from, and all of the decision.
func (x *inputRecorder) appendInputs(b []byte, q *RouteQuery, v *RoutingView, d *RouteDecision, ok bool, now time.Time) []byte {
	b = decision.AppendUint(b, x.views)
	b = append(decision.AppendUint(b, uint64(len(x.random))), x.random...)
	b = appendQuery(b, q, x.drainDraw)
	for i := range v.Locals {
		b = appendLoad(b, q.Ledger.UncreditedLoad(v.Locals[i].Summary.Path, q.Model))
	}
	for i := range v.Peers {
		p := &v.Peers[i]
		b = appendLoad(b, q.Ledger.UncreditedLoad(capacity.Path{Region: p.Region}, q.Model))
		b = decision.AppendBool(b, q.SpillBudgets.isPaused(p.Region, q.Model, now))
		budget := true
		if p.Summary != nil {
			budget = q.SpillBudgets.peekBudget(p.Region, q.Model, q.SpillShare*p.headroomFor(q), now)
		}
		b = decision.AppendBool(b, budget)
	}
	return appendDecision(decision.AppendBool(b, ok), d)
}

func appendLoad(b []byte, l SentLoad) []byte {
	return decision.AppendInt(decision.AppendInt(decision.AppendInt(b, l.Tokens), l.KV), l.Requests)
}

func takeLoad(r *decision.Reader) SentLoad {
	return SentLoad{Tokens: r.TakeInt(), KV: r.TakeInt(), Requests: r.TakeInt()}
}

func appendQuery(b []byte, q *RouteQuery, drainDraw float64) []byte {
	for _, n := range [...]int{q.PromptTokens, q.MaxTokens, q.Choices, int(q.Class), q.Hops, int(q.Margin), q.AffinityTokens} {
		b = decision.AppendInt(b, int64(n))
	}
	for _, v := range [...]bool{q.Spill, q.ExpectContinue, q.Overflow} {
		b = decision.AppendBool(b, v)
	}
	b = appendTexts(appendTexts(b, q.Residency), q.Regions)
	for _, s := range [...]string{q.Pool, q.ExcludedPeer, q.FailedEndpoints[0], q.FailedEndpoints[1]} {
		b = decision.AppendText(b, s)
	}
	b = appendPath(decision.AppendFixed(b, q.Session), q.AffinityPath)
	b = decision.AppendFloat(decision.AppendFloat(b, drainDraw), q.SpillShare)
	b = decision.AppendUint(b, uint64(len(q.Prefix)))
	for _, h := range q.Prefix {
		b = decision.AppendFixed(b, h)
	}
	return b
}

func appendPath(b []byte, p capacity.Path) []byte {
	return decision.AppendText(decision.AppendText(decision.AppendText(b, p.Region), p.Zone), p.Instance)
}

func takePath(r *decision.Reader) capacity.Path {
	return capacity.Path{Region: r.TakeText(), Zone: r.TakeText(), Instance: r.TakeText()}
}

func appendDecision(b []byte, d *RouteDecision) []byte {
	b = appendPath(b, d.Path)
	for _, s := range [...]string{d.Peer, d.Endpoint, d.Reason, d.SpillHeld, d.SpillHeldPeer} {
		b = decision.AppendText(b, s)
	}
	for _, f := range [...]float64{d.TTFTSeconds, d.Interference, d.SpillCostLimit, d.SpillRate} {
		b = decision.AppendFloat(b, f)
	}
	return decision.AppendInt(b, d.CachedTokens)
}

func takeDecision(r *decision.Reader) RouteDecision {
	return RouteDecision{
		Path: takePath(r), Peer: r.TakeText(), Endpoint: r.TakeText(), Reason: r.TakeText(), SpillHeld: r.TakeText(), SpillHeldPeer: r.TakeText(),
		TTFTSeconds: r.TakeFloat(), Interference: r.TakeFloat(), SpillCostLimit: r.TakeFloat(), SpillRate: r.TakeFloat(), CachedTokens: r.TakeInt(),
	}
}
