package global

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// explain replays a request's decisions: this tier's own, then those of the gateway and the local that it would meet.
func (s *Server) explain(ctx context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
	v, err := s.needView()
	if err != nil {
		return nil, err
	}
	rec := explain.Record{Tier: "global", Node: s.cfg.Name}
	region, service, err := v.explain(q, &rec)
	if err != nil {
		return nil, err
	}
	if note := v.onTrial(); note != "" {
		rec.Note(note)
	}
	out := &admin.ExplainAnswer{Records: []explain.Record{rec}}
	if region < 0 {
		return out, nil
	}
	q.Service = v.spec.Services[service].Name
	below, err := s.askExplain(ctx, v, region, q)
	if err != nil {
		out.Records[0].Note(fmt.Sprintf("region %s was not asked further: %v", v.spec.Regions[region].Name, err))
	}
	out.Records = append(out.Records, below...)
	return out, nil
}

func (s *Server) askExplain(ctx context.Context, v *View, region int, q admin.ExplainQuery) ([]explain.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	gateway, ok := v.spokesman(region)
	if !ok {
		return nil, fmt.Errorf("none of its gateways is connected to %s", s.cfg.Name)
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	b, err := s.parent.Ask(ctx, gateway, admin.AskExplain, body)
	if err != nil {
		return nil, err
	}
	var out []explain.Record
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("gateway %s answered something else than records: %w", gateway, err)
	}
	return out, nil
}

// explain fills rec in and returns the region chosen, -1 for none.
func (v *View) explain(q admin.ExplainQuery, rec *explain.Record) (region, service int, err error) {
	client, err := parseFrom(q.From)
	if err != nil {
		return -1, 0, err
	}
	if service, err = v.serviceFor(q); err != nil {
		return -1, 0, err
	}
	tenant := v.spec.Tenant(q.Tenant)
	if q.Tenant != "" && tenant == nil {
		return -1, 0, admin.BadRequest(fmt.Sprintf("unknown tenant %q", q.Tenant), "leave it out to explain for anybody")
	}
	fix := v.atlas.Locate(client)
	query := v.query(service, fix.Cell, client, v.barred(tenant))
	waits := make([]float64, len(v.regions))
	for r := range waits {
		waits[r] = v.regions[r].wait[service]
	}
	rec.Query = "service=" + v.spec.Services[service].Name + " from=" + client.String()
	if q.Model != "" {
		rec.Query += " model=" + q.Model
	}
	c := v.table.Explain(v.spec, &query, waits, rec)
	v.qualify(rec, service)
	if note := v.pinNote(c, &query, capacity.NetworkNumber(client)); note != "" {
		rec.Note(note)
	}
	for r := range v.regions {
		if e, ok := v.estimate(fix.Cell, r); ok {
			rec.Note(rttNote(v.spec.Regions[r].Name, &e))
		}
	}
	rec.Note(strings.Join(append(placeTexts(fix), "source="+fix.Source), " "))
	rec.Note(strings.Join(v.versions(), " ") + fmt.Sprintf(" plan_age=%s", time.Since(v.planSince).Round(time.Millisecond)))
	return c.Region, service, nil
}

// qualify tells a region without workers from one that is lost, and adds ages.
func (v *View) qualify(rec *explain.Record, service int) {
	for r := range v.regions {
		c := &rec.Candidates[r]
		if c.Dropped == "lost" && !v.gone.Has(r) {
			c.Dropped = "no_ready_worker"
		}
		x := &v.regions[r]
		if _, ready := v.load(r, service); x.drained {
			rec.Note(c.Name + ": draining, takes no new clients")
		} else if x.heard && x.group.State == capacity.Lost {
			rec.Note(fmt.Sprintf("%s: unreachable, last report %s ago", c.Name, x.group.Age.Round(time.Millisecond)))
		} else if x.heard {
			rec.Note(fmt.Sprintf("%s: %s, age %s, %d workers ready", c.Name, x.group.State, x.group.Age.Round(time.Millisecond), ready))
		} else {
			rec.Note(c.Name + ": no gateway has been heard of")
		}
		if x.unheard && len(x.heardBy) > 0 {
			rec.Note(c.Name + ": " + x.hearsay())
		}
	}
}

// parseFrom reads an address, or a prefix for its first address.
func parseFrom(from string) (netip.Addr, error) {
	if from == "" {
		return netip.Addr{}, admin.BadRequest("a global node chooses a region by the client's address, and none is given", "add --from 192.0.2.7, or ask a gateway or a local instance")
	}
	if p, err := netip.ParsePrefix(from); err == nil {
		return p.Masked().Addr(), nil
	}
	a, err := netip.ParseAddr(from)
	if err != nil {
		return a, admin.BadRequest(fmt.Sprintf("from %q is not an address", from), "write one such as 192.0.2.7 or 2001:db8::/48")
	}
	return a.WithZone(""), nil
}

// serviceFor is the service that is asked for, or the first that serves the model.
func (v *View) serviceFor(q admin.ExplainQuery) (int, error) {
	if q.Model != "" && v.spec.ModelNamed(q.Model) == nil && v.spec.AliasNamed(q.Model) == nil {
		return -1, admin.BadRequest(fmt.Sprintf("unknown model %q", q.Model), "models are "+strings.Join(v.modelNames(), ", "))
	}
	if q.Service != "" {
		if i := v.service(q.Service); i >= 0 {
			return i, nil
		}
		return -1, admin.BadRequest(fmt.Sprintf("unknown service %q", q.Service), "services are "+strings.Join(v.serviceNames(), ", "))
	}
	for i := range v.spec.Services {
		if q.Model == "" || v.serves(i, q.Model) {
			return i, nil
		}
	}
	return -1, admin.BadRequest(fmt.Sprintf("no service serves model %q", q.Model), "services are "+strings.Join(v.serviceNames(), ", "))
}

// serves reports whether a service takes requests for a model or alias.
func (v *View) serves(service int, model string) bool {
	if v.ready[service] == nil || v.ready[service][model] {
		return true
	}
	return slices.ContainsFunc(targets(v.spec, model), func(t string) bool { return v.ready[service][t] })
}

func (v *View) modelNames() (out []string) {
	for i := range v.spec.Models {
		out = append(out, v.spec.Models[i].Name)
	}
	for i := range v.spec.Aliases {
		out = append(out, v.spec.Aliases[i].Name)
	}
	return out
}

func (v *View) serviceNames() (out []string) {
	for i := range v.spec.Services {
		out = append(out, v.spec.Services[i].Name)
	}
	return out
}
