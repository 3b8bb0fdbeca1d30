package global

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
)

// historySize is how many plans a node remembers. Raft keeps the newest alone, so that this is what the node has seen
// since it started: at most 4 MiB of plans as they were encoded.
const historySize = 64

// history is a bounded memory of the plans that were agreed, oldest first.
type history struct {
	mu    sync.Mutex
	plans []pastPlan
}

// pastPlan is a plan as the node took it.
type pastPlan struct {
	epoch, term uint64
	origin      consensus.Origin
	taken       time.Time
	body        []byte
}

// take remembers the plan of a state, if it is a new one.
func (h *history) take(st *consensus.State, now time.Time) {
	if st.PlanEpoch == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.plans); n > 0 {
		switch last := h.plans[n-1].epoch; {
		case last == st.PlanEpoch:
			return
		case last > st.PlanEpoch: // another cluster's state
			h.plans = nil
		}
	}
	if len(h.plans) >= historySize {
		h.plans = slices.Delete(h.plans, 0, len(h.plans)-historySize+1)
	}
	h.plans = append(h.plans, pastPlan{epoch: st.PlanEpoch, term: st.PlanTerm, origin: st.PlanOrigin, taken: now, body: st.Plan})
}

// newest are the last limit plans, oldest first; 0 means all.
func (h *history) newest(limit uint64) []pastPlan {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := uint64(len(h.plans))
	if limit == 0 || limit > n {
		limit = n
	}
	return slices.Clone(h.plans[n-limit:])
}

// find returns the plan of an epoch, 0 for the newest, and the one remembered before it, which may be missing.
func (h *history) find(epoch uint64) (p, before *pastPlan, err error) {
	all := h.newest(0)
	i := slices.IndexFunc(all, func(p pastPlan) bool { return p.epoch == epoch })
	if epoch == 0 {
		i = len(all) - 1
	}
	switch {
	case len(all) == 0:
		return nil, nil, admin.Unavailable("no plan was agreed since this node started", "a leader makes one as soon as it hears the regions: spillway status")
	case i < 0:
		return nil, nil, admin.BadRequest(
			fmt.Sprintf("plan %d is not remembered here", epoch),
			fmt.Sprintf("this node has seen %d to %d since it started: spillway plan history", all[0].epoch, all[len(all)-1].epoch))
	case i > 0:
		before = &all[i-1]
	}
	return &all[i], before, nil
}

// costs go with a plan, so that every node can say what its leader saw. In seconds per token.
type costs struct {
	Cost   float64 `json:"cost"`
	Before float64 `json:"before"`
}

// costsOf is what the leader notes beside a plan.
func costsOf(r *steer.Result) string {
	b, err := json.Marshal(costs{r.Cost, r.PrevCost})
	if err != nil {
		return "" // not a number: nothing worth a note
	}
	return string(b)
}

// of describes a plan; p may be nil for one that could not be read.
func (a *pastPlan) of(p *steer.Plan, now time.Time) admin.PlanOf {
	var c costs
	_ = json.Unmarshal([]byte(a.origin.Detail), &c) // a note of another release leaves the costs unknown
	out := admin.PlanOf{
		Epoch: a.epoch, Term: a.term, By: a.origin.Actor, Reason: a.origin.Reason, MadeAt: a.origin.At,
		AgeMS: now.Sub(a.taken).Milliseconds(), Bytes: len(a.body), CostSeconds: c.Cost, CostBeforeSeconds: c.Before,
	}
	if p != nil {
		out.SpecVersion = p.SpecVersion
	}
	return out
}
