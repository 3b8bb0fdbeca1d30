package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// fetchSpec returns the spec in force at a node. It is nil if the node has none: a local instance below a gateway.
func fetchSpec(ctx context.Context, c *admin.Client) (*spec.Spec, error) {
	a, err := c.GetSpec(ctx)
	if e := (*admin.Error)(nil); errors.As(err, &e) && (e.Status == http.StatusNotImplemented || e.Status == http.StatusServiceUnavailable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, _, err := decodeSpec("the spec of the node", []byte(a.Text))
	if err != nil {
		return nil, fmt.Errorf("the spec in force at the node cannot be read by this command, version %s: use the command of the node's release: %w", version, err)
	}
	return s, nil
}

// modelItem is one model: what the spec declares and what the regions report.
type modelItem struct {
	Name     string `json:"name"`
	Declared bool   `json:"declared"` // by the spec
	// Regions are the regions with a ready worker; Reporting is how many regions report the model.
	Regions    []string          `json:"regions"`
	Reporting  int               `json:"reporting_regions"`
	Capacity   admin.ModelStatus `json:"capacity"` // the sum over the regions; the longest wait
	Aliases    []string          `json:"aliases,omitempty"`
	Parent     string            `json:"parent,omitempty"`
	Fallback   string            `json:"fallback,omitempty"`
	MaxContext int               `json:"max_context,omitempty"` // tokens; 0: as the workers report
}

func (m *modelItem) figures() loadFigures {
	if m.Reporting == 0 {
		return loadFigures{}
	}
	return sumModels(admin.StateFresh, []admin.ModelStatus{m.Capacity})
}

func newModelKind() itemKind[modelItem] {
	return itemKind[modelItem]{
		name: "models", aliases: []string{"model"}, short: "List the models: those of the spec and those that workers serve, with load and capacity",
		long: `Columns:
  REGIONS  regions with a ready worker
  READY    ready workers and all workers; +N warm: asleep, +N cold: could load the model
  WAIT     predicted queue wait of class standard, of the region with the longest
  KV USED  used share of the KV caches`,
		examples: "  spillway get models\n  spillway get models llama-3.1-8b -o wide\n  spillway get models --sort -queued -w",
		itemName: func(m *modelItem) string { return m.Name },
		list: func(ctx context.Context, c *admin.Client) ([]modelItem, error) {
			s, err := c.GetStatus(ctx)
			if err != nil {
				return nil, err
			}
			declared, err := fetchSpec(ctx, c)
			if err != nil {
				return nil, err
			}
			return listModels(s, declared), nil
		},
		columns: joinColumns([]tableColumn[modelItem]{
			{title: "NAME", cell: func(m *modelItem) tableCell { return newTextCell(m.Name) }},
			{title: "REGIONS", cell: func(m *modelItem) tableCell { return newCountCell(int64(len(m.Regions))) }},
		}, withModelReadiness(loadColumns((*modelItem).figures)), []tableColumn[modelItem]{
			{title: "SPEC", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(formatYesNo(m.Declared)) }},
			{title: "CONTEXT tok", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(formatLimit(int64(m.MaxContext))) }},
			{title: "PARENT", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(m.Parent) }},
			{title: "FALLBACK", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(m.Fallback) }},
			{title: "ALIASES", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(strings.Join(m.Aliases, ",")) }},
			{title: "SERVED IN", wide: true, cell: func(m *modelItem) tableCell { return newTextCell(strings.Join(m.Regions, ",")) }},
		}),
	}
}

// withModelReadiness replaces the column READY by one with warm and cold workers.
func withModelReadiness(columns []tableColumn[modelItem]) []tableColumn[modelItem] {
	for i := range columns {
		if columns[i].title == "READY" {
			columns[i].cell = func(m *modelItem) tableCell {
				if m.Reporting == 0 {
					return newTextCell("")
				}
				return newNumberCell(float64(m.Capacity.Ready), formatReadyCount(&m.Capacity))
			}
		}
	}
	return columns
}

// listModels merges the models of the spec, which may be nil, with those that reachable regions report.
func listModels(s *admin.Status, declared *spec.Spec) []modelItem {
	at := map[string]int{}
	var out []modelItem
	find := func(name string) *modelItem {
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, modelItem{Name: name, Regions: []string{}, Capacity: admin.ModelStatus{Name: name}})
		}
		return &out[i]
	}
	if declared != nil {
		for i := range declared.Models {
			d := &declared.Models[i]
			m := find(d.Name)
			m.Declared, m.Parent, m.Fallback, m.MaxContext = true, d.Parent, d.Fallback, d.MaxContext
		}
		for i := range declared.Aliases {
			for _, t := range declared.Aliases[i].Targets {
				m := find(t.Model)
				m.Aliases = append(m.Aliases, declared.Aliases[i].Name)
			}
		}
	}
	for i := range s.Regions {
		r := &s.Regions[i]
		if r.State == admin.StateUnreachable || r.State == admin.StateUnknown {
			continue
		}
		for k := range r.Models {
			m := find(r.Models[k].Name)
			m.addRegion(r.Name, &r.Models[k])
		}
	}
	slices.SortFunc(out, func(a, b modelItem) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (m *modelItem) addRegion(region string, s *admin.ModelStatus) {
	m.Reporting++
	if s.Ready > 0 {
		m.Regions = append(m.Regions, region)
	}
	c := &m.Capacity
	c.Ready, c.Total, c.Warm, c.Cold = c.Ready+s.Ready, c.Total+s.Total, c.Warm+s.Warm, c.Cold+s.Cold
	c.Running, c.Queued, c.Backlog = c.Running+s.Running, c.Queued+s.Queued, c.Backlog+s.Backlog
	c.PrefillRate, c.DecodeRate = c.PrefillRate+s.PrefillRate, c.DecodeRate+s.DecodeRate
	c.KVFree, c.KVTotal, c.Headroom = c.KVFree+s.KVFree, c.KVTotal+s.KVTotal, c.Headroom+s.Headroom
	c.WaitSeconds = max(c.WaitSeconds, s.WaitSeconds)
}

// tenantItem is one tenant of the spec, without its keys.
type tenantItem struct {
	Name   string  `json:"name"`
	Class  string  `json:"class"`
	Weight float64 `json:"weight"`
	// Keys counts the keys without a validity period and those of timed_keys that are valid now. NextExpiry is the first
	// expiry of these.
	Keys          int       `json:"valid_keys"`
	NextExpiry    time.Time `json:"next_expiry,omitzero"`
	Scope         string    `json:"scope"`
	RequestsLimit int       `json:"requests_per_minute,omitempty"`
	TokensLimit   int       `json:"tokens_per_minute,omitempty"`
	Concurrency   int       `json:"concurrency,omitempty"`
	TokensPerDay  int64     `json:"budget_tokens_per_day,omitempty"`
	DollarsPerDay float64   `json:"budget_dollars_per_day,omitempty"`
	Residency     []string  `json:"residency,omitempty"`
	Regions       []string  `json:"regions,omitempty"`
	Models        []string  `json:"models,omitempty"`
	PrefixGroup   string    `json:"prefix_group,omitempty"`
	Trusted       bool      `json:"trusted,omitempty"`
	Fallback      bool      `json:"fallback,omitempty"`
}

func newTenantKind() itemKind[tenantItem] {
	limit := func(title string, wide bool, value func(*tenantItem) int64) tableColumn[tenantItem] {
		return tableColumn[tenantItem]{title: title, wide: wide, cell: func(t *tenantItem) tableCell {
			if n := value(t); n > 0 {
				return newCountCell(n)
			}
			return newTextCell("")
		}}
	}
	return itemKind[tenantItem]{
		name: "tenants", aliases: []string{"tenant"}, short: "List the tenants of the spec: class, weight, limits, budget and keys",
		long: `Columns; - means unlimited or any:
  KEYS         keys that are valid now
  EXPIRES      first expiry of these keys
  SCOPE        limits apply in each region, or to all regions together (global)
  CONCURRENCY  requests in flight`,
		examples: "  spillway get tenants\n  spillway get tenants acme -o yaml\n  spillway get tenants --sort expires",
		itemName: func(t *tenantItem) string { return t.Name },
		list: func(ctx context.Context, c *admin.Client) ([]tenantItem, error) {
			a, err := c.GetSpec(ctx)
			if err != nil {
				return nil, err
			}
			s, _, err := decodeSpec("the spec of the node", []byte(a.Text))
			if err != nil {
				return nil, err
			}
			return listTenants(s, time.Now()), nil
		},
		columns: []tableColumn[tenantItem]{
			{title: "NAME", cell: func(t *tenantItem) tableCell { return newTextCell(t.Name) }},
			{title: "CLASS", cell: func(t *tenantItem) tableCell { return newTextCell(t.Class) }},
			{title: "WEIGHT", cell: func(t *tenantItem) tableCell {
				return newNumberCell(t.Weight, strconv.FormatFloat(t.Weight, 'g', -1, 64))
			}},
			{title: "KEYS", cell: func(t *tenantItem) tableCell { return newCountCell(int64(t.Keys)) }},
			{title: "EXPIRES", cell: func(t *tenantItem) tableCell { return newTimeCell(t.NextExpiry) }},
			{title: "SCOPE", cell: func(t *tenantItem) tableCell { return newTextCell(t.Scope) }},
			limit("REQUESTS /min", false, func(t *tenantItem) int64 { return int64(t.RequestsLimit) }),
			limit("TOKENS /min", false, func(t *tenantItem) int64 { return int64(t.TokensLimit) }),
			limit("CONCURRENCY", false, func(t *tenantItem) int64 { return int64(t.Concurrency) }),
			limit("BUDGET tok/day", false, func(t *tenantItem) int64 { return t.TokensPerDay }),
			{title: "SPEND $/day", cell: func(t *tenantItem) tableCell {
				if t.DollarsPerDay <= 0 {
					return newTextCell("")
				}
				return newNumberCell(t.DollarsPerDay, strconv.FormatFloat(t.DollarsPerDay, 'f', 2, 64))
			}},
			{title: "RESIDENCY", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(strings.Join(t.Residency, ",")) }},
			{title: "REGIONS", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(strings.Join(t.Regions, ",")) }},
			{title: "MODELS", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(strings.Join(t.Models, ",")) }},
			{title: "GROUP", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(t.PrefixGroup) }},
			{title: "TRUSTED", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(formatYesNo(t.Trusted)) }},
			{title: "FALLBACK", wide: true, cell: func(t *tenantItem) tableCell { return newTextCell(formatYesNo(t.Fallback)) }},
		},
	}
}

func listTenants(s *spec.Spec, now time.Time) []tenantItem {
	out := make([]tenantItem, 0, len(s.Tenants))
	for i := range s.Tenants {
		t := &s.Tenants[i]
		item := tenantItem{
			Name: t.Name, Class: t.Class.String(), Weight: t.Weight, Keys: len(t.Keys), Scope: t.Limits.Scope,
			RequestsLimit: t.Limits.RequestsPerMinute, TokensLimit: t.Limits.TokensPerMinute, Concurrency: t.Limits.Concurrency,
			TokensPerDay: t.Budget.TokensPerDay, DollarsPerDay: t.Budget.DollarsPerDay,
			Residency: t.Residency, Regions: t.Regions, Models: t.Models, PrefixGroup: t.PrefixGroup, Trusted: t.Trusted, Fallback: t.Fallback,
		}
		for k := range t.TimedKeys {
			from, until := t.TimedKeys[k].NotBefore.AsTime(), t.TimedKeys[k].NotAfter.AsTime()
			if now.Before(from) || !until.IsZero() && !now.Before(until) {
				continue
			}
			item.Keys++
			if !until.IsZero() && (item.NextExpiry.IsZero() || until.Before(item.NextExpiry)) {
				item.NextExpiry = until
			}
		}
		out = append(out, item)
	}
	return out
}

func newMemberKind() itemKind[admin.Member] {
	type member = admin.Member
	return itemKind[member]{
		name: "members", aliases: []string{"member"}, short: "List the global nodes of the Raft cluster",
		long: `Columns:
  CONTACT  time since the last message from the node
  LAG      log entries of the answering node that the member lacks
  CLOCK    offset of its clock from that of the answering node`,
		examples: "  spillway get members\n  spillway get members g1 -o json\n  spillway get members -w",
		itemName: func(m *member) string { return m.Name },
		list: func(ctx context.Context, c *admin.Client) ([]member, error) {
			a, err := c.ListMembers(ctx)
			if err != nil {
				return nil, err
			}
			return a.Members, nil
		},
		columns: []tableColumn[member]{
			{title: "NAME", cell: func(m *member) tableCell { return newTextCell(m.Name) }},
			{title: "ADDRESS", cell: func(m *member) tableCell { return newTextCell(m.Addr) }},
			{title: "VOTER", cell: func(m *member) tableCell { return newTextCell(formatYesNo(m.Voter)) }},
			{title: "LEADER", cell: func(m *member) tableCell { return newTextCell(formatYesNo(m.Leader)) }},
			{title: "HEALTH", cell: func(m *member) tableCell { return newTextCell(formatMemberHealth(m.Health)) }},
			{title: "CONTACT", volatile: true, cell: func(m *member) tableCell {
				if m.LastContactMS == nil {
					return newTextCell("")
				}
				return newAgeCell(*m.LastContactMS)
			}},
			{title: "LAG", volatile: true, cell: func(m *member) tableCell {
				if m.Behind == nil {
					return newTextCell("")
				}
				return newCountCell(int64(*m.Behind))
			}},
			{title: "CLOCK", volatile: true, cell: func(m *member) tableCell {
				if m.ClockOffsetMS == nil {
					return newTextCell("")
				}
				s := float64(*m.ClockOffsetMS) / 1000
				return newNumberCell(s, fmt.Sprintf("%+.3fs", s))
			}},
			{title: "REMOVAL", wide: true, cell: func(m *member) tableCell { return newTextCell(cmp.Or(m.Outlook, "")) }},
		},
	}
}

func formatYesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// formatLimit returns a limit, "" for 0, which means none.
func formatLimit(n int64) string {
	if n == 0 {
		return ""
	}
	return formatCount(n)
}

// newTimeCell returns a cell with a time, "-" for the zero time.
func newTimeCell(t time.Time) tableCell {
	if t.IsZero() {
		return newTextCell("")
	}
	return newNumberCell(float64(t.Unix()), t.UTC().Format(time.RFC3339))
}
