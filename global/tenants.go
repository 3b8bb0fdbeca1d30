package global

import (
	"context"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// listTenants returns the tenants with their use by region, as the gateways last reported it.
func (s *statusReporter) listTenants(context.Context) (*admin.TenantsAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	uses := map[string][]capacity.TenantUsage{}
	for i := range v.Children.Children {
		if c := &v.Children.Children[i]; c.State != capacity.Unreachable {
			region := c.Summary.Path.Region
			uses[region] = append(uses[region], c.Summary.TenantUsages...)
		}
	}
	out := admin.BuildTenants(s.name, v.Spec.Tenants, uses, time.Now())
	for r := range v.Regions {
		if x := &v.Regions[r]; !x.HasReport() || x.IsUnreachable() {
			out.Missing = append(out.Missing, v.Spec.Regions[r].Name)
		}
	}
	return out, nil
}
