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

// planHistorySize is the number of plans that a node keeps. Raft keeps only the newest plan, so this is what the node
// has received since it started: at most 4 MiB of encoded plans.
const planHistorySize = 64

// planHistory is a bounded history of agreed plans, oldest first.
type planHistory struct {
	mu    sync.Mutex
	plans []pastPlan
}

// pastPlan is a plan as the node applied it.
type pastPlan struct {
	epoch, term uint64
	origin      consensus.PlanOrigin
	receivedAt  time.Time
	body        []byte
}

// recordPlan adds the plan of a state if it is new.
func (h *planHistory) recordPlan(st *consensus.State, now time.Time) {
	if st.PlanEpoch == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.plans); n > 0 {
		switch last := h.plans[n-1].epoch; {
		case last == st.PlanEpoch:
			return
		case last > st.PlanEpoch: // the state of another cluster
			h.plans = nil
		}
	}
	if len(h.plans) >= planHistorySize {
		h.plans = slices.Delete(h.plans, 0, len(h.plans)-planHistorySize+1)
	}
	h.plans = append(h.plans, pastPlan{epoch: st.PlanEpoch, term: st.PlanTerm, origin: st.PlanOrigin, receivedAt: now, body: st.Plan})
}

// newestPlans returns the last limit plans, oldest first; 0 means all.
func (h *planHistory) newestPlans(limit uint64) []pastPlan {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := uint64(len(h.plans))
	if limit == 0 || limit > n {
		limit = n
	}
	return slices.Clone(h.plans[n-limit:])
}

// findPlan returns the plan of an epoch, 0 for the newest, and the kept plan before it, which may be missing.
func (h *planHistory) findPlan(epoch uint64) (p, before *pastPlan, err error) {
	all := h.newestPlans(0)
	i := slices.IndexFunc(all, func(p pastPlan) bool { return p.epoch == epoch })
	if epoch == 0 {
		i = len(all) - 1
	}
	switch {
	case len(all) == 0:
		return nil, nil, admin.UnavailableError("no plan has been committed since this node started", "the leader makes one when the regions report; `spillway status` shows which do")
	case i < 0:
		return nil, nil, admin.BadRequestError(
			fmt.Sprintf("this node does not keep plan %d", epoch),
			fmt.Sprintf("it keeps plans %d to %d; `spillway plan history` lists them", all[0].epoch, all[len(all)-1].epoch))
	case i > 0:
		before = &all[i-1]
	}
	return &all[i], before, nil
}

// planCosts is stored with a plan, so that every node can report the costs that its leader computed. In seconds per
// token.
type planCosts struct {
	Cost   float64 `json:"cost"`
	Before float64 `json:"before"`
}

// encodeCosts returns the costs in the form that the leader stores with a plan.
func encodeCosts(r *steer.SolveResult) string {
	b, err := json.Marshal(planCosts{r.Cost, r.PrevCost})
	if err != nil {
		return "" // not a number: nothing to store
	}
	return string(b)
}

// describePastPlan describes a plan; p is nil if the plan could not be decoded.
func (a *pastPlan) describePastPlan(p *steer.Plan, now time.Time) admin.PlanOf {
	var c planCosts
	_ = json.Unmarshal([]byte(a.origin.Detail), &c) // with the detail of another release, the costs are unknown
	out := admin.PlanOf{
		Epoch: a.epoch, Term: a.term, By: a.origin.Actor, Reason: a.origin.Reason, MadeAt: a.origin.At,
		AgeMS: now.Sub(a.receivedAt).Milliseconds(), Bytes: len(a.body), CostSeconds: c.Cost, CostBeforeSeconds: c.Before,
	}
	if p != nil {
		out.SpecVersion = p.SpecVersion
	}
	return out
}
