package admin

import (
	"context"
	"net/http"
	"slices"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

const pathTenants = "/v1/tenants"

// TenantsAnswer lists the tenants of the spec in force, with their use now.
type TenantsAnswer struct {
	Node    string         `json:"node"` // the node that answered
	Tenants []TenantStatus `json:"tenants"`
	// Missing are regions whose gateways do not all answer: their use is not complete.
	Missing []string `json:"missing,omitempty"`
}

// TenantStatus is one tenant. A limit of 0 means unlimited.
type TenantStatus struct {
	Name              string  `json:"name"`
	Class             string  `json:"class"`
	Scope             string  `json:"scope"` // of the limits: "region" or "global"
	RequestsPerMinute int64   `json:"requests_per_minute_limit"`
	TokensPerMinute   int64   `json:"tokens_per_minute_limit"`
	Concurrency       int64   `json:"concurrency_limit"`
	TokensPerDay      int64   `json:"tokens_per_day_limit"`
	DollarsPerDay     float64 `json:"dollars_per_day_limit"`
	// Use is the sum over Regions.
	Use     TenantUse   `json:"use"`
	Regions []TenantUse `json:"regions"` // regions that report use
}

// TenantUse is a tenant's use.
type TenantUse struct {
	Region string `json:"region,omitempty"`
	// Requests and tokens include refused ones.
	RequestsPerMinute float64 `json:"requests_per_minute"`
	TokensPerMinute   float64 `json:"tokens_per_minute"`
	Running           int64   `json:"running"`
	// DayTokens and DayDollars are counted since the start of the tenant's day; only for tenants with a budget.
	DayTokens  int64   `json:"day_tokens"`
	DayDollars float64 `json:"day_dollars"`
}

// GetTenants lists the tenants with their limits and use.
func (c *Client) GetTenants(ctx context.Context) (*TenantsAnswer, error) {
	return callNode[TenantsAnswer](ctx, c, http.MethodGet, pathTenants, nil)
}

// NewTenantsAnswer returns the tenants of a spec without use.
func NewTenantsAnswer(node string, tenants []spec.Tenant) *TenantsAnswer {
	out := &TenantsAnswer{Node: node, Tenants: make([]TenantStatus, 0, len(tenants))}
	for i := range tenants {
		t := &tenants[i]
		out.Tenants = append(out.Tenants, TenantStatus{
			Name: t.Name, Class: t.Class.String(), Scope: t.Limits.Scope, RequestsPerMinute: int64(t.Limits.RequestsPerMinute),
			TokensPerMinute: int64(t.Limits.TokensPerMinute), Concurrency: int64(t.Limits.Concurrency),
			TokensPerDay: t.Budget.TokensPerDay, DollarsPerDay: t.Budget.DollarsPerDay, Regions: []TenantUse{},
		})
	}
	return out
}

// AddUse adds the use of tenants in a region, by name. Tenants that are not in the answer are left out.
func (a *TenantsAnswer) AddUse(region string, uses map[string]TenantUse) {
	for i := range a.Tenants {
		t := &a.Tenants[i]
		u, ok := uses[t.Name]
		if !ok {
			continue
		}
		k := slices.IndexFunc(t.Regions, func(x TenantUse) bool { return x.Region == region })
		if k < 0 {
			k = len(t.Regions)
			t.Regions = append(t.Regions, TenantUse{Region: region})
		}
		for _, x := range []*TenantUse{&t.Use, &t.Regions[k]} {
			x.RequestsPerMinute += u.RequestsPerMinute
			x.TokensPerMinute += u.TokensPerMinute
			x.Running += u.Running
			x.DayTokens += u.DayTokens
			x.DayDollars += u.DayDollars
		}
	}
}

// ToTenantUses converts the use at a gateway, by tenant.
func ToTenantUses(uses []capacity.TenantUsage) map[string]TenantUse {
	out := make(map[string]TenantUse, len(uses))
	for i := range uses {
		u := &uses[i]
		out[u.Tenant] = TenantUse{
			RequestsPerMinute: float64(u.RequestsMilli) / 1000, TokensPerMinute: float64(u.TokensMilli) / 1000, Running: u.Running,
			DayTokens: u.DayTokens, DayDollars: float64(u.DayMicros) / 1e6,
		}
	}
	return out
}
