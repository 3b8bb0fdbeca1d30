package global

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// listTenants returns the tenants with their use by region, as the gateways answer.
func (s *statusReporter) listTenants(ctx context.Context) (*admin.TenantsAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayAskTimeout)
	defer cancel()
	out := admin.NewTenantsAnswer(s.name, v.Spec.Tenants)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for r := range v.Regions {
		region, asked := v.Spec.Regions[r].Name, reachableGateways(v, r)
		if len(asked) == 0 {
			out.Missing = append(out.Missing, region)
		}
		for _, g := range asked {
			wg.Go(func() {
				uses, err := s.askTenantUses(ctx, g.Summary.Path)
				mu.Lock()
				defer mu.Unlock()
				out.AddUse(region, uses)
				if err != nil && !slices.Contains(out.Missing, region) {
					out.Missing = append(out.Missing, region)
				}
			})
		}
	}
	wg.Wait()
	slices.Sort(out.Missing)
	for i := range out.Tenants {
		slices.SortFunc(out.Tenants[i].Regions, func(a, b admin.TenantUse) int { return strings.Compare(a.Region, b.Region) })
	}
	return out, nil
}

// askTenantUses returns the use of the tenants at one gateway.
func (s *statusReporter) askTenantUses(ctx context.Context, gateway capacity.Path) (map[string]admin.TenantUse, error) {
	b, err := s.parent.QueryChild(ctx, gateway, admin.QueryTenants, nil)
	if err != nil {
		return nil, err
	}
	var answer admin.TenantsAnswer
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, err
	}
	uses := map[string]admin.TenantUse{}
	for i := range answer.Tenants {
		if t := &answer.Tenants[i]; len(t.Regions) > 0 {
			uses[t.Name] = t.Use
		}
	}
	return uses, nil
}
