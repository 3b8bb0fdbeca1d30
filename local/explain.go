package local

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/modelroute"
)

// explainRules notes which fallback model would answer instead, if any, and the pool of the request.
func (a *Agent) explainRules(v *zoneRequest, o *zonePolicy, rule string, rec *explain.Explanation) {
	if m := o.Spec.FindModel(v.Model); a.cfg.Plain && m != nil && rule != modelroute.RulePin {
		if f := a.handler.chooseFallback(v, o, m); f != nil {
			rec.AddNote(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can and would answer", m.Name, o.TTFTTarget(m.Name, v.Class), f.Name))
			v.Model = f.Name
		}
	}
	if p, _ := modelroute.FindPool(o.Spec, v.Tenant, v.Model, v.Class); p != nil {
		rec.AddNote("the request is of the pool " + p.Name)
	}
}
