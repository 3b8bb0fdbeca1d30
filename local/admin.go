package local

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Backend is what operators can do at this instance.
func (a *Agent) Backend() admin.Backend {
	b := admin.Backend{
		Status: a.adminStatus, Explain: a.adminExplain, Queue: a.adminQueue, Uplinks: a.adminUplinks, Autoscaling: a.adminAutoscaling,
		Ready: a.ready, Basis: a.basis,
	}
	if len(a.cfg.Gateways) == 0 {
		b.Spec, b.SpecNow, b.Apply = a.specAnswer, a.specAnswer, a.refuseApply
		b.Drains = func(context.Context) (*admin.DrainAnswer, error) { return a.drainAnswer(time.Now()), nil }
		b.DrainsNow, b.Drain, b.Undrain = b.Drains, a.drain, a.undrain
	}
	return b
}

// newAdmin opens the admin interface: status, explain, metrics and readiness of this instance.
func (a *Agent) newAdmin() (*admin.Server, error) {
	return admin.New(admin.Config{
		Role: "local", Node: a.path().String(), Fleet: admin.FleetOf(a.fleetCerts(), a.path().String()+" "+a.cfg.AdminSocket),
		Socket: a.cfg.AdminSocket, Listen: a.cfg.AdminListen, Metrics: a.cfg.MetricsListen, Grants: a.cfg.AdminGrants,
		Certs: a.cfg.Certs, Gatherer: a.cfg.Registry, Certificates: a.certificates(), Log: a.log,
		Backend: a.Backend(),
	})
}

// fleetCerts are those that say which installation this instance is part of, nil for a zone that stands alone.
func (a *Agent) fleetCerts() *identity.Certs {
	if len(a.cfg.Gateways) == 0 {
		return nil
	}
	return a.cfg.Certs
}

// MetricsAddr is the bound address of the metrics listener, or nil.
func (a *Agent) MetricsAddr() net.Addr {
	if a.admin == nil {
		return nil
	}
	return a.admin.MetricsAddr()
}

// adminStatus is the instance's zone inside its region.
func (a *Agent) adminStatus(context.Context) (*admin.Status, error) {
	o := a.policy.Load()
	zone := a.Status()
	s := &admin.Status{
		Node: a.cfg.Name, Role: "local", Version: a.cfg.Version, StartedAt: a.started, SpecVersion: o.specVersion, PlanEpoch: o.planEpoch,
		SpecFile: a.specStatus(), Basis: a.basis(),
		Regions: []admin.RegionStatus{{
			Name: a.cfg.Region, State: admin.StateFresh, Draining: zone.Draining, SpecVersion: o.specVersion,
			Gateways: []admin.GatewayStatus{}, Models: zone.Models, Zones: []admin.ZoneStatus{zone},
		}},
	}
	if a.specs.drains != nil {
		s.Drains = a.specs.drains.List(time.Now())
	}
	return s, nil
}

// adminUplinks are the sessions with the region's gateways.
func (a *Agent) adminUplinks(context.Context) (*admin.UplinksAnswer, error) {
	return uplink.Page(a.path().String(), nil, a.uplink), nil
}

func (a *Agent) adminExplain(_ context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
	recs, err := a.Explain(q)
	if err != nil {
		return nil, admin.BadRequest(err.Error(), "")
	}
	return &admin.ExplainAnswer{Records: recs}, nil
}

// ready is nil once a worker takes requests.
func (a *Agent) ready() error {
	if a.leaving.Load() {
		return errors.New("this instance is stopping")
	}
	f := a.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.ill() == "" && len(w.seats) > 0 { // another instance's counts: we would serve it if that one died
			return nil
		}
	}
	return errors.New("no worker is ready")
}

// certificates are those whose end operators are to know of.
func (a *Agent) certificates() certfile.Expiries {
	if a.cfg.Certs == nil {
		return nil
	}
	return a.cfg.Certs.Expiries()
}
