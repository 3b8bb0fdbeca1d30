package local

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/warm"
)

// maxNamedModels bounds how many of a worker's models an explanation names.
const maxNamedModels = 4

// explain replays a choice without making it. Every worker of the zone is in the record: those of the model with their
// costs or with what drops them, the others with what they serve instead.
func (f *floor) explain(v *visit, rec *explain.Record, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[v.model]
	if p == nil || len(p.workers) == 0 {
		rec.Choose("", pick.ReasonNoWorker)
	} else {
		f.fit(v, p)
		f.guest(v, p, now)
		if rec.On() && v.query.Contended && v.hop.Tenant != "" {
			rec.Note(guestNote(v))
		}
		d, room := pick.Look(&v.query, p.view, now, f.rng, rec)
		loads := f.hopeless(p) && f.outlookCold(p.model, now).Hope > warm.Failed // then it waits for that, as noted below
		if rec.On() && !(loads && d.Reason == pick.ReasonNoWorker) {
			rec.Note("queue: " + f.queueNote(v, p, d.Reason, room, now))
		}
		if f.hopeless(p) {
			rec.Note(f.coldNote(v.model, now))
		}
		for c := range spec.Class(spec.NumClasses) {
			if n := p.queue.Ahead(c); n > 0 {
				rec.Note(c.String() + ": tokens waiting before a new request: " + itoa(n))
			}
		}
	}
	f.explainOthers(v.model, rec)
}

// guestNote says how a tenant beyond its part is placed.
func guestNote(v *visit) string {
	note := "tenant " + v.hop.Tenant + " has more than its part of what runs here, and others ask as well: "
	if v.query.Guest {
		return note + "it is a guest, let in only where they would not notice"
	}
	return note + "it finds workers full sooner, and once anybody waits it is a guest"
}

// explainOthers lists the workers that do not serve the model, by name.
func (f *floor) explainOthers(model string, rec *explain.Record) {
	why := map[string]string{}
	for name, w := range f.workers {
		if w.serves(model) == nil && w.places[model] == nil {
			why[name] = w.serving()
		}
	}
	for w := range f.leaving {
		if _, again := f.workers[w.declared.Name]; !again {
			why[w.declared.Name] = "no longer declared: its last answers run"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(why)) {
		rec.Candidate(name).Drop(why[name])
	}
}

// serving says what a worker serves, for those who looked for something else.
func (w *worker) serving() string {
	switch {
	case w.down() != "" && len(w.models) == 0:
		return w.down()
	case len(w.models) == 0:
		return "serves no model"
	}
	var names []string
	for _, m := range w.models[:min(len(w.models), maxNamedModels)] {
		names = append(names, m.ID)
	}
	out := "another model: serves " + strings.Join(names, ", ")
	if more := len(w.models) - len(names); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// explainRules says which fallback would answer instead, where one would, and which pool the request is of.
func (a *Agent) explainRules(v *visit, o *orders, rule string, rec *explain.Record) {
	if m := o.spec.ModelNamed(v.model); a.cfg.Plain && m != nil && rule != route.RulePin {
		if f := a.fallback(v, o, m); f != nil {
			rec.Note(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can, and would answer", m.Name, o.ttft(m.Name, v.class), f.Name))
			v.model = f.Name
		}
	}
	if p, _ := route.PoolOf(o.spec, v.hop.Tenant, v.model, v.class); p != nil {
		rec.Note("the request is of the pool " + p.Name)
	}
}
