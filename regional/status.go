package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	askTimeout = time.Second // for one local's answer
	askAtOnce  = 32          // questions under way at a time
)

// answer serves the global tier's questions.
func (g *Gateway) answer(ctx context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.AskStatus:
		return json.Marshal(g.regionStatus(ctx))
	case admin.AskExplain:
		var q admin.ExplainQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the question: %w", err)
		}
		records, err := g.explain(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(records)
	}
	return nil, fmt.Errorf("gateways do not answer %q", kind)
}

// backend is what operators can do at this node.
func (g *Gateway) backend() admin.Backend {
	b := admin.Backend{
		Status: func(ctx context.Context) (*admin.Status, error) { return g.status(ctx), nil },
		Explain: func(ctx context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
			records, err := g.explain(ctx, q)
			if err != nil {
				return nil, admin.BadRequest(err.Error(), "")
			}
			return &admin.ExplainAnswer{Records: records}, nil
		},
		Spec: func(context.Context) (*admin.SpecAnswer, error) {
			st := g.state.Load()
			if st == nil {
				return nil, admin.Unavailable("this gateway has no spec yet", "apply one at a global node")
			}
			return &admin.SpecAnswer{Version: st.directive.SpecVersion, Text: string(st.directive.Spec)}, nil
		},
		Uplinks: func(context.Context) (*admin.UplinksAnswer, error) {
			return uplink.Page(g.cfg.Region+"/"+g.cfg.Name, g.parent, g.child), nil
		},
		Queue: g.cfg.Queue, Autoscaling: g.cfg.Autoscaling,
		Basis: g.basis,
		Ready: func() error {
			if g.stopping.Load() {
				return errors.New("this gateway is stopping")
			}
			if !g.state.Load().ready() {
				return fmt.Errorf("no spec that lists region %s has arrived", g.cfg.Region)
			}
			return nil
		},
	}
	if g.source != nil {
		g.source.backend(g, &b)
	}
	return b
}

// status is the node's own view.
func (g *Gateway) status(ctx context.Context) *admin.Status {
	s := &admin.Status{Node: g.cfg.Name, Role: "regional", Version: g.cfg.Version, StartedAt: g.started, Basis: g.basis(), Regions: []admin.RegionStatus{g.regionStatus(ctx)}}
	if g.source != nil {
		s.SpecFile = g.source.status()
	}
	if st := g.state.Load(); st != nil {
		s.SpecVersion, s.PlanEpoch = st.directive.SpecVersion, st.directive.PlanEpoch
		s.Drains = g.drainsInForce(st)
		for _, p := range g.view.Load().Peers {
			s.Regions = append(s.Regions, peerStatus(&p))
		}
	}
	return s
}

// regionStatus is this region, with what its locals say of their workers.
func (g *Gateway) regionStatus(ctx context.Context) admin.RegionStatus {
	st, v, now := g.state.Load(), g.view.Load(), time.Now()
	g.mu.Lock()
	sum := g.standing(st, now)
	g.mu.Unlock()
	r := admin.RegionStatus{
		Name: g.cfg.Region, State: admin.StateFresh, Draining: v.Drained || g.stopping.Load(), Models: modelStatuses(&sum),
		Gateways: []admin.GatewayStatus{{Name: g.cfg.Name, URL: g.url(st), Endpoint: g.endpoint(), State: admin.StateFresh, InFlight: g.inFlight.Load()}},
	}
	if st != nil {
		r.SpecVersion = st.directive.SpecVersion
	}
	r.Zones = g.zoneStatuses(ctx, v)
	if st.ready() {
		for _, name := range st.home.Zones {
			if !slices.ContainsFunc(r.Zones, func(z admin.ZoneStatus) bool { return z.Name == name }) {
				r.Zones = append(r.Zones, admin.ZoneStatus{Name: name, State: admin.StateUnknown, Draining: st.drained(g.cfg.Region, name, now)})
			}
		}
	}
	slices.SortFunc(r.Zones, func(a, b admin.ZoneStatus) int { return strings.Compare(a.Name+"/"+a.Instance, b.Name+"/"+b.Instance) })
	return r
}

// url is this gateway's front door as clients reach it, as the spec says.
func (g *Gateway) url(st *state) string {
	if st.ready() {
		for i := range st.home.Gateways {
			if st.home.Gateways[i].Name == g.cfg.Name {
				return st.home.Gateways[i].URL
			}
		}
	}
	return ""
}

// zoneStatuses asks every local; one that does not answer in time is shown as last reported.
func (g *Gateway) zoneStatuses(ctx context.Context, v *zone.View) []admin.ZoneStatus {
	out := make([]admin.ZoneStatus, len(v.Locals))
	places := make(chan struct{}, askAtOnce)
	var wg sync.WaitGroup
	for i := range v.Locals {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			out[i] = g.zoneStatus(ctx, &v.Locals[i])
		})
	}
	wg.Wait()
	return out
}

func (g *Gateway) zoneStatus(ctx context.Context, l *zone.Local) admin.ZoneStatus {
	z := admin.ZoneStatus{Models: modelStatuses(l.Summary)}
	if l.State != capacity.Lost {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		b, err := g.parent.Ask(ctx, l.Summary.Path, admin.AskStatus, nil)
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

func peerStatus(p *zone.Peer) admin.RegionStatus {
	r := admin.RegionStatus{
		Name: p.Region, State: p.State.String(), AgeMS: p.Age.Milliseconds(), Draining: p.Drained,
		Note: "as the global tier last told this gateway",
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
		m := &s.Models[i]
		wait, _ := m.Wait(spec.Standard) // zero where nothing is ready, which Ready tells
		out = append(out, admin.ModelStatus{
			Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued,
			PrefillRate: m.PrefillRate(), DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
			WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
			Warm: m.Warm, Cold: m.Cold,
		})
	}
	return out
}
