package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

const pathTenants = "/v1/tenants"

// TenantsAnswer lists the tenants of the spec in force, with their use as last reported.
type TenantsAnswer struct {
	Node    string         `json:"node"` // the node that answered
	Tenants []TenantStatus `json:"tenants"`
	// Missing are regions without a current report: their use is not counted.
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

// BuildTenants returns the tenants of a spec with their use by region. The use of tenants that the spec does not list is
// left out.
func BuildTenants(node string, tenants []spec.Tenant, byRegion map[string][]capacity.TenantUsage, now time.Time) *TenantsAnswer {
	out := &TenantsAnswer{Node: node, Tenants: make([]TenantStatus, 0, len(tenants))}
	at := map[string]int{}
	for i := range tenants {
		t := &tenants[i]
		at[t.Name] = i
		out.Tenants = append(out.Tenants, TenantStatus{
			Name: t.Name, Class: t.Class.String(), Scope: t.Limits.Scope, RequestsPerMinute: int64(t.Limits.RequestsPerMinute),
			TokensPerMinute: int64(t.Limits.TokensPerMinute), Concurrency: int64(t.Limits.Concurrency),
			TokensPerDay: t.Budget.TokensPerDay, DollarsPerDay: t.Budget.DollarsPerDay, Regions: []TenantUse{},
		})
	}
	for _, region := range slices.Sorted(maps.Keys(byRegion)) {
		for _, u := range byRegion[region] {
			i, ok := at[u.Tenant]
			if !ok {
				continue
			}
			use := TenantUse{
				Region: region, RequestsPerMinute: float64(u.RequestsMilli) / 1000, TokensPerMinute: float64(u.TokensMilli) / 1000, Running: u.Running,
			}
			if u.Day == tenants[i].Budget.DayNumber(now) { // use of an earlier day no longer counts
				use.DayTokens, use.DayDollars = u.DayTokens, float64(u.DayMicros)/1e6
			}
			out.Tenants[i].addUse(use)
		}
	}
	return out
}

// addUse adds the use of one gateway to that of its region and to the sum.
func (t *TenantStatus) addUse(u TenantUse) {
	i := slices.IndexFunc(t.Regions, func(x TenantUse) bool { return x.Region == u.Region })
	if i < 0 {
		i = len(t.Regions)
		t.Regions = append(t.Regions, TenantUse{Region: u.Region})
	}
	for _, x := range []*TenantUse{&t.Use, &t.Regions[i]} {
		x.RequestsPerMinute += u.RequestsPerMinute
		x.TokensPerMinute += u.TokensPerMinute
		x.Running += u.Running
		x.DayTokens += u.DayTokens
		x.DayDollars += u.DayDollars
	}
}
