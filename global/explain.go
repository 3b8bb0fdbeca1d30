package global

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/explain"
)

// explainRequest replays a request's decisions: this tier's own, then those of the gateway and the local instance
// that the request would reach.
func (s *statusReporter) explainRequest(ctx context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	rec := explain.Explanation{Tier: "global", Node: s.name}
	region, service, err := explainChoice(v, q, &rec)
	if err != nil {
		return nil, err
	}
	if note := v.rolloutNote(); note != "" {
		rec.AddNote(note)
	}
	out := &admin.ExplainAnswer{Records: []explain.Explanation{rec}}
	if region < 0 {
		return out, nil
	}
	q.Service = v.Spec.Services[service].Name
	below, err := s.askGatewayExplain(ctx, v, region, q)
	if err != nil {
		out.Records[0].AddNote(fmt.Sprintf("region %s was not asked further: %v", v.Spec.Regions[region].Name, err))
	}
	out.Records = append(out.Records, below...)
	return out, nil
}

func (s *statusReporter) askGatewayExplain(ctx context.Context, v *nodeSnapshot, region int, q admin.ExplainQuery) ([]explain.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, gatewayAskTimeout)
	defer cancel()
	gateway, ok := freshestGateway(v, region)
	if !ok {
		return nil, fmt.Errorf("none of its gateways is connected to %s", s.name)
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	b, err := s.parent.QueryChild(ctx, gateway, admin.QueryExplain, body)
	if err != nil {
		return nil, err
	}
	var out []explain.Explanation
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("gateway %s sent an answer that this node cannot decode: %w", gateway, err)
	}
	return out, nil
}

// explainChoice fills rec in and returns the chosen region, or -1.
func explainChoice(v *nodeSnapshot, q admin.ExplainQuery, rec *explain.Explanation) (region, service int, err error) {
	client, err := parseClientAddr(q.From)
	if err != nil {
		return -1, 0, err
	}
	if service, err = findService(v, q); err != nil {
		return -1, 0, err
	}
	tenant := v.Spec.FindTenant(q.Tenant)
	if q.Tenant != "" && tenant == nil {
		return -1, 0, admin.BadRequestError(fmt.Sprintf("unknown tenant %q", q.Tenant), "omit --tenant to explain for a client of any tenant")
	}
	fix := v.atlas.Locate(client)
	query := v.BuildQuery(service, fix.Cell, client, v.ExcludedRegions(tenant))
	waits := make([]float64, len(v.Regions))
	for r := range waits {
		waits[r] = v.Regions[r].Waits[service]
	}
	rec.Query = "service=" + v.Spec.Services[service].Name + " from=" + client.String()
	if q.Model != "" {
		rec.Query += " model=" + q.Model
	}
	c := v.Table.ExplainPick(v.Spec, &query, waits, rec)
	annotateCandidates(v, rec, service)
	if note := describePin(v, c, &query, capacity.NetworkNumber(client)); note != "" {
		rec.AddNote(note)
	}
	for r := range v.Regions {
		if e, ok := v.EstimateRTT(fix.Cell, r); ok {
			rec.AddNote(describeRTT(v.Spec.Regions[r].Name, &e))
		}
	}
	rec.AddNote(strings.Join(append(locationTexts(fix), "source="+fix.Source), " "))
	rec.AddNote(strings.Join(v.versionTexts(), " ") + fmt.Sprintf(" plan_age=%s", time.Since(v.planSince).Round(time.Millisecond)))
	return c.Region, service, nil
}

// annotateCandidates distinguishes a region without workers from an unreachable one, and adds report ages.
func annotateCandidates(v *nodeSnapshot, rec *explain.Explanation, service int) {
	for r := range v.Regions {
		c := &rec.Candidates[r]
		if c.IneligibleReason == "lost" && !v.UnreachableByAll.Has(r) {
			c.IneligibleReason = "no_ready_worker"
		}
		x := &v.Regions[r]
		if _, ready := v.ServiceWait(r, service); x.Drained {
			rec.AddNote(c.Name + ": draining, takes no new clients")
		} else if v.Draining.Has(r) {
			rec.AddNote(fmt.Sprintf("%s: a drain is under way, %.0f %% of its clients stay", c.Name, 100*float64(v.DrainRemaining[r])/256))
		} else if x.HasReport() && x.Group.State == capacity.Unreachable {
			rec.AddNote(fmt.Sprintf("%s: unreachable, last report %s ago", c.Name, x.Group.Age.Round(time.Millisecond)))
		} else if x.HasReport() {
			rec.AddNote(fmt.Sprintf("%s: %s, age %s, %d workers ready", c.Name, x.Group.State, x.Group.Age.Round(time.Millisecond), ready))
		} else {
			rec.AddNote(c.Name + ": no gateway has been heard of")
		}
		if x.IsUnreachable() && len(x.ReachedBy) > 0 {
			rec.AddNote(c.Name + ": " + x.DescribeReachability())
		}
	}
}

// parseClientAddr reads an address, or a prefix and returns its first address.
func parseClientAddr(from string) (netip.Addr, error) {
	if from == "" {
		return netip.Addr{}, admin.BadRequestError("no client address is given, and a global node chooses a region by it", "add --from 192.0.2.7, or send the query to a gateway or a local instance")
	}
	if p, err := netip.ParsePrefix(from); err == nil {
		return p.Masked().Addr(), nil
	}
	a, err := netip.ParseAddr(from)
	if err != nil {
		return a, admin.BadRequestError(fmt.Sprintf("from: %q is neither an address nor a prefix", from), "write one such as 192.0.2.7 or 2001:db8::/48")
	}
	return a.WithZone(""), nil
}

// findService returns the service of the query, or the first one that serves the model.
func findService(v *nodeSnapshot, q admin.ExplainQuery) (int, error) {
	if q.Model != "" && v.Spec.FindModel(q.Model) == nil && v.Spec.FindAlias(q.Model) == nil {
		return -1, admin.BadRequestError(fmt.Sprintf("unknown model %q", q.Model), "models are "+strings.Join(v.ModelNames(), ", "))
	}
	if q.Service != "" {
		if i := v.ServiceIndex(q.Service); i >= 0 {
			return i, nil
		}
		return -1, admin.BadRequestError(fmt.Sprintf("unknown service %q", q.Service), "services are "+strings.Join(v.ServiceNames(), ", "))
	}
	for i := range v.Spec.Services {
		if q.Model == "" || v.ServesModel(i, q.Model) {
			return i, nil
		}
	}
	return -1, admin.BadRequestError(fmt.Sprintf("no service serves model %q", q.Model), "services are "+strings.Join(v.ServiceNames(), ", "))
}

// rolloutNote returns the note for explanations.
func (v *nodeSnapshot) rolloutNote() string {
	g := v.state.Rollout
	switch {
	case g == nil:
		return ""
	case g.IsEverywhere():
		return fmt.Sprintf("spec %d is staged everywhere (stage %d)", v.Version, g.Number)
	}
	return fmt.Sprintf("spec %d is staged in %s (stage %d): clients are still steered by spec %d", v.Version+1, strings.Join(g.Regions, ", "), g.Number, v.Version)
}
