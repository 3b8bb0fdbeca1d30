package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/routing"
)

const (
	queryTimeout         = time.Second // for one local instance's response
	maxConcurrentQueries = 32          // concurrent queries
)

// adminService serves the status, explanations and drains of this node to operators and to the global tier.
type adminService struct {
	cfg          *Config
	log          *slog.Logger
	started      time.Time
	policies     *policyKeeper
	policy       *atomic.Pointer[gatewayPolicy]
	router       *sharedRouter
	server       *gatewayServer
	parent       *uplink.Parent
	child        *uplink.Child // nil without a global tier
	metrics      *gatewayMetrics
	tenants      *tenantGate
	peerEndpoint string // where other regions forward requests to; empty without other regions
}

// answerQuery answers queries of the global tier.
func (a *adminService) answerQuery(ctx context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.QueryStatus:
		return json.Marshal(a.regionStatus(ctx))
	case admin.QueryTenants:
		out, err := a.listTenants(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	case admin.QueryExplain:
		var q admin.ExplainQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the question: %w", err)
		}
		records, err := a.explainRoute(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(records)
	case admin.QueryTrace:
		return a.answerTrace(ctx, payload)
	}
	return nil, fmt.Errorf("gateways do not answer %q", kind)
}

// adminBackend returns the admin operations of this node.
func (a *adminService) adminBackend() admin.Backend {
	b := admin.Backend{
		Status: func(ctx context.Context) (*admin.Status, error) { return a.nodeStatus(ctx), nil },
		Explain: func(ctx context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
			records, err := a.explainRoute(ctx, q)
			if err != nil {
				return nil, admin.BadRequestError(err.Error(), "")
			}
			return &admin.ExplainAnswer{Records: records}, nil
		},
		Trace: a.traceRequest,
		Spec: func(context.Context) (*admin.SpecAnswer, error) {
			st := a.policy.Load()
			if st == nil {
				return nil, admin.UnavailableError("this gateway has no spec yet", "apply one at a global node")
			}
			return &admin.SpecAnswer{Version: st.directive.SpecVersion, Text: string(st.directive.Spec)}, nil
		},
		Uplinks: func(context.Context) (*admin.UplinksAnswer, error) {
			return uplink.DescribeSessions(a.cfg.Region+"/"+a.cfg.Name, a.parent, a.child), nil
		},
		Queue: a.cfg.Queue, Autoscaling: a.cfg.Autoscaling,
		Basis: a.listBasis, Tenants: a.listTenants,
		Ready: func() error {
			if a.server.stopping.Load() {
				return errors.New("this gateway is stopping")
			}
			if !a.policy.Load().isReady() {
				return fmt.Errorf("no spec that lists region %s has arrived", a.cfg.Region)
			}
			return nil
		},
	}
	if a.policies.source != nil {
		a.policies.source.extendBackend(a, &b)
	}
	return b
}

// nodeStatus returns the node's own status.
func (a *adminService) nodeStatus(ctx context.Context) *admin.Status {
	s := &admin.Status{Node: a.cfg.Name, Role: "regional", Version: a.cfg.Version, StartedAt: a.started, Basis: a.listBasis(), Regions: []admin.RegionStatus{a.regionStatus(ctx)}}
	if a.policies.source != nil {
		s.SpecFile = a.policies.source.fileStatus()
	}
	if st := a.policy.Load(); st != nil {
		s.SpecVersion, s.PlanEpoch = st.directive.SpecVersion, st.directive.PlanEpoch
		s.Drains = a.drainsInForce(st)
		for _, p := range a.router.view.Load().Peers {
			s.Regions = append(s.Regions, peerStatus(&p))
		}
	}
	return s
}

// listTenants returns the tenants with their use at this gateway.
func (a *adminService) listTenants(context.Context) (*admin.TenantsAnswer, error) {
	st, now := a.policy.Load(), time.Now()
	if st == nil {
		return nil, admin.UnavailableError("this gateway has no spec yet", "apply one at a global node")
	}
	out := admin.NewTenantsAnswer(a.cfg.Region+"/"+a.cfg.Name, st.spec.Tenants)
	out.AddUse(a.cfg.Region, admin.ToTenantUses(a.tenants.listUses(now)))
	return out, nil
}

// regionStatus returns the status of this region, with the workers that its local instances report.
func (a *adminService) regionStatus(ctx context.Context) admin.RegionStatus {
	st, v, now := a.policy.Load(), a.router.view.Load(), time.Now()
	sum := a.router.mergeUsable(now)
	r := admin.RegionStatus{
		Name: a.cfg.Region, State: admin.StateFresh, Draining: v.Drained || a.server.stopping.Load(), Models: modelStatuses(&sum),
		Gateways: []admin.GatewayStatus{{Name: a.cfg.Name, URL: a.publicURL(st), Endpoint: a.peerEndpoint, State: admin.StateFresh, InFlight: a.server.inFlight.Load(), Traffic: a.metrics.describeTraffic()}},
	}
	if st != nil {
		r.SpecVersion = st.directive.SpecVersion
	}
	r.Zones = a.zoneStatuses(ctx, v)
	if st.isReady() {
		for _, name := range st.region.Zones {
			if !slices.ContainsFunc(r.Zones, func(z admin.ZoneStatus) bool { return z.Name == name }) {
				r.Zones = append(r.Zones, admin.ZoneStatus{Name: name, State: admin.StateUnknown, Draining: st.route.IsDrained(a.cfg.Region, name, now)})
			}
		}
	}
	slices.SortFunc(r.Zones, func(x, y admin.ZoneStatus) int { return strings.Compare(x.Name+"/"+x.Instance, y.Name+"/"+y.Instance) })
	return r
}

// publicURL returns the URL of this gateway's public listener for clients, from the spec.
func (a *adminService) publicURL(st *gatewayPolicy) string {
	if st.isReady() {
		for i := range st.region.Gateways {
			if st.region.Gateways[i].Name == a.cfg.Name {
				return st.region.Gateways[i].URL
			}
		}
	}
	return ""
}

// zoneStatuses queries every local instance; one that does not respond in time is shown by its last summary.
func (a *adminService) zoneStatuses(ctx context.Context, v *routing.RoutingView) []admin.ZoneStatus {
	out := make([]admin.ZoneStatus, len(v.Locals))
	places := make(chan struct{}, maxConcurrentQueries)
	var wg sync.WaitGroup
	for i := range v.Locals {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			out[i] = a.zoneStatus(ctx, &v.Locals[i])
		})
	}
	wg.Wait()
	return out
}

func (a *adminService) zoneStatus(ctx context.Context, l *routing.LocalInstance) admin.ZoneStatus {
	z := admin.ZoneStatus{Models: modelStatuses(l.Summary)}
	if l.State != capacity.Unreachable {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		b, err := a.parent.QueryChild(ctx, l.Summary.Path, admin.QueryStatus, nil)
		if err == nil {
			err = json.Unmarshal(b, &z)
		}
		if err != nil {
			z.Note = "did not answer: shown as last reported"
		}
	}
	z.Name, z.Instance, z.Endpoint = l.Summary.Path.Zone, l.Summary.Path.Instance, l.Summary.Endpoint
	z.State, z.AgeMS, z.Draining = l.State.String(), l.Age.Milliseconds(), l.Drained || l.Summary.Draining
	return z
}

func peerStatus(p *routing.PeerRegion) admin.RegionStatus {
	r := admin.RegionStatus{
		Name: p.Region, State: p.State.String(), AgeMS: p.Age.Milliseconds(), Draining: p.Drained,
		Note: "as the last directive of the global tier reports it",
	}
	for _, x := range p.Gateways {
		r.Gateways = append(r.Gateways, admin.GatewayStatus{Name: x.Name, Endpoint: x.Endpoint, State: p.State.String()})
	}
	if p.Summary == nil {
		r.State = admin.StateUnknown
		return r
	}
	r.Models = modelStatuses(p.Summary)
	return r
}

func modelStatuses(s *capacity.Summary) []admin.ModelStatus {
	out := make([]admin.ModelStatus, 0, len(s.Models))
	for i := range s.Models {
		m := s.Models[i]
		wait, _ := m.PredictWait(spec.Standard) // zero when no worker is ready, as Ready shows
		out = append(out, admin.ModelStatus{
			Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued,
			PrefillRate: m.PrefillRate(), DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
			WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
			Warm: m.Warm, Cold: m.Cold,
		})
	}
	return out
}

// listBasis lists the sources of the configuration in force, with their ages.
func (a *adminService) listBasis() []admin.Basis {
	if a.policies.source != nil {
		return []admin.Basis{a.specFileBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	if a.child == nil {
		return out
	}
	for _, s := range a.child.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.NewBasis("uplink", from, s.ConfirmedAt, detail))
	}
	return out
}

func (a *adminService) directiveBasis() admin.Basis {
	st := a.policy.Load()
	if st == nil {
		return admin.Basis{What: "directive", From: "none", AgeMS: -1, Detail: "waiting for the global tier"}
	}
	d := st.directive
	what := fmt.Sprintf("spec v%d, plan %d, index %d", d.SpecVersion, d.PlanEpoch, d.Index)
	switch {
	case !d.PersistedAt.IsZero():
		return admin.NewBasis("directive", "disk", d.PersistedAt, fmt.Sprintf("spec v%d, plan %d, until the global tier is heard", d.SpecVersion, d.PlanEpoch))
	case d.Index == 0:
		return admin.Basis{What: "directive", From: "config", AgeMS: -1, Detail: "the configured spec"}
	}
	return admin.NewBasis("directive", "parent", st.receivedAt, what)
}

func (a *adminService) specFileBasis() admin.Basis {
	f := a.policies.source.fileStatus()
	return admin.NewBasis("spec", "file", f.ChangedAt, f.Path)
}
