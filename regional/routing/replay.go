package routing

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Replayer makes recorded choices again. It reads the records of one gateway in their order.
type Replayer struct {
	summaries map[uint64]*capacity.Summary
	views     map[uint64]*RoutingView
	last      uint64 // number of the newest view
}

// maxReplayViews bounds the views and summaries that a replayer keeps. Decisions refer to recent ones.
const maxReplayViews = 4096

// NewReplayer returns a replayer without state.
func NewReplayer() *Replayer {
	return &Replayer{summaries: map[uint64]*capacity.Summary{}, views: map[uint64]*RoutingView{}}
}

// Errors of a replay.
var (
	// ErrNoInputs means that a record has no inputs: decisions.file was not set, or they were too long.
	ErrNoInputs = errors.New("the record has no inputs")
	// ErrNoState means that the view of a decision is not in the files.
	ErrNoState = errors.New("what the decision was made from is in an earlier file")
)

// ReplayedChoice is a recorded choice and the same choice made again.
type ReplayedChoice struct {
	Was, Now     RouteDecision
	WasOK, NowOK bool
}

// IsEqual reports whether both are equal in every bit.
func (c *ReplayedChoice) IsEqual() bool { return c.Was == c.Now && c.WasOK == c.NowOK }

// AddState adds a state record.
func (p *Replayer) AddState(rec *decision.Record) error {
	if len(rec.Inputs) == 0 {
		return ErrNoInputs
	}
	r := decision.NewReader(rec.Inputs[1:])
	n := r.TakeUint()
	switch rec.Inputs[0] {
	case stateSummary:
		s, err := capacity.DecodeSummary(r.TakeRest())
		if err != nil || r.Failure() != nil {
			return errors.Join(err, r.Failure())
		}
		if len(p.summaries) >= 16*maxReplayViews {
			clear(p.summaries)
		}
		p.summaries[n] = s
	case stateView:
		v, ok := p.takeView(r)
		if err := r.Failure(); err != nil {
			return err
		}
		if !ok {
			return ErrNoState
		}
		if len(p.views) >= maxReplayViews {
			clear(p.views)
		}
		p.views[n], p.last = v, n
	}
	return nil
}

// takeView reads a view; false if one of its summaries is unknown.
func (p *Replayer) takeView(r *decision.Reader) (v *RoutingView, ok bool) {
	v, ok = &RoutingView{Drained: r.TakeBool()}, true
	for range r.TakeLen(maxReplayList) {
		l := LocalInstance{Summary: p.summaries[r.TakeUint()]}
		l.State, l.Drained = capacity.Freshness(r.TakeRaw()), r.TakeBool()
		l.DrainedShare, l.Weight = r.TakeFloat(), r.TakeFloat()
		if ok = ok && l.Summary != nil; ok {
			l.Name = l.Summary.Path.String()
		}
		v.Locals = append(v.Locals, l)
	}
	for range r.TakeLen(maxReplayList) {
		x := PeerRegion{Region: r.TakeText()}
		n := r.TakeUint()
		x.Summary = p.summaries[n]
		ok = ok && (n == 0 || x.Summary != nil)
		x.State, x.RTT = capacity.Freshness(r.TakeRaw()), time.Duration(r.TakeInt())
		x.Drained, x.Unreported, x.Residency = r.TakeBool(), r.TakeBool(), takeTexts(r)
		for range r.TakeLen(maxReplayList) {
			x.Gateways = append(x.Gateways, PeerGateway{Name: r.TakeText(), Endpoint: r.TakeText()})
		}
		v.Peers = append(v.Peers, x)
	}
	return v, ok
}

// takeQuery reads a query.
func takeQuery(r *decision.Reader, rec *decision.Record) *RouteQuery {
	q := &RouteQuery{
		RequestID: rec.RequestID, Tenant: rec.Tenant, Model: rec.Model, PromptTokens: int(r.TakeInt()), MaxTokens: int(r.TakeInt()), Choices: int(r.TakeInt()),
		Class: spec.Class(min(max(r.TakeInt(), 0), spec.NumClasses-1)), Hops: int(r.TakeInt()), Margin: time.Duration(r.TakeInt()), AffinityTokens: int(r.TakeInt()),
		Spill: r.TakeBool(), ExpectContinue: r.TakeBool(), Overflow: r.TakeBool(), Residency: takeTexts(r), Regions: takeTexts(r),
		Pool: r.TakeText(), ExcludedPeer: r.TakeText(), FailedEndpoints: [2]string{r.TakeText(), r.TakeText()},
		Session: r.TakeFixed(), AffinityPath: takePath(r), drainDraw: r.TakeFloat(), SpillShare: r.TakeFloat(), affinityKnown: true,
	}
	for range r.TakeLen(maxReplayList) {
		q.Prefix = append(q.Prefix, r.TakeFixed())
	}
	return q
}

// ReplayChoice makes a recorded choice again. change may replace parts of the query and of the view, which are copies; nil: nothing is
// changed.
func (p *Replayer) ReplayChoice(rec *decision.Record, change func(*RouteQuery, *RoutingView)) (out ReplayedChoice, err error) {
	if len(rec.Inputs) == 0 {
		return out, ErrNoInputs
	}
	r := decision.NewReader(rec.Inputs)
	view := p.views[r.TakeUint()]
	if view == nil {
		return out, ErrNoState
	}
	random := make([]byte, r.TakeLen(64))
	for i := range random {
		random[i] = r.TakeRaw()
	}
	q := takeQuery(r, rec)
	x := &replayedInputs{loads: map[capacity.Path]SentLoad{}, paused: map[string]bool{}, budget: map[string]bool{}}
	for i := range view.Locals {
		x.loads[view.Locals[i].Summary.Path] = takeLoad(r)
	}
	for i := range view.Peers {
		region := view.Peers[i].Region
		x.loads[capacity.Path{Region: region}] = takeLoad(r)
		x.paused[region], x.budget[region] = r.TakeBool(), r.TakeBool()
	}
	out.WasOK, out.Was = r.TakeBool(), takeDecision(r)
	var pcg rand.PCG
	if err := errors.Join(r.Failure(), pcg.UnmarshalBinary(random)); err != nil {
		return out, err
	}
	v := *view
	v.Locals, v.Peers = slices.Clone(view.Locals), slices.Clone(view.Peers)
	q.replayed = x
	if change != nil {
		change(q, &v)
	}
	out.Now, out.NowOK = ChooseRoute(q, &v, rec.At, rand.New(&pcg), nil)
	return out, nil
}
