package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/sched"
)

// AdminBackend returns the operations that operators have at this instance.
func (a *Agent) AdminBackend() admin.Backend {
	b := admin.Backend{
		Status: a.answerStatus, Explain: a.answerExplain, Queue: a.answerQueue, Uplinks: a.answerUplinks, Autoscaling: a.answerAutoscaling,
		Ready: a.checkReady, Basis: a.listBases,
	}
	if len(a.cfg.Gateways) == 0 {
		b.Spec, b.SpecNow, b.Apply = a.specs.answerSpec, a.specs.answerSpec, a.specs.refuseApply
		b.Drains = func(context.Context) (*admin.DrainAnswer, error) { return a.specs.listDrains(time.Now()), nil }
		b.DrainsNow, b.Drain, b.Undrain = b.Drains, a.specs.startDrain, a.specs.endDrain
	}
	return b
}

// newAdminServer opens the admin interface: status, explain, metrics and readiness of this instance.
func (a *Agent) newAdminServer() (*admin.Server, error) {
	return admin.New(admin.Config{
		Role: "local", Node: a.path().String(), Fleet: admin.FleetOf(a.fleetCerts(), a.path().String()+" "+a.cfg.AdminSocket),
		Socket: a.cfg.AdminSocket, Listen: a.cfg.AdminListen, Metrics: a.cfg.MetricsListen, Grants: a.cfg.AdminGrants,
		Certs: a.cfg.Certs, Gatherer: a.cfg.Registry, Certificates: a.certificateExpiries, Log: a.log,
		Backend: a.AdminBackend(),
	})
}

// fleetCerts returns the certificates that identify the installation, or nil for a standalone zone.
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

// answerStatus returns the status of the instance's zone, wrapped in its region.
func (a *Agent) answerStatus(context.Context) (*admin.Status, error) {
	o := a.policy.Load()
	zone := a.Status()
	s := &admin.Status{
		Node: a.cfg.Name, Role: "local", Version: a.cfg.Version, StartedAt: a.startedAt, SpecVersion: o.specVersion, PlanEpoch: o.planEpoch,
		SpecFile: a.specs.specStatus(), Basis: a.listBases(),
		Regions: []admin.RegionStatus{{
			Name: a.cfg.Region, State: admin.StateFresh, Draining: zone.Draining, SpecVersion: o.specVersion,
			Gateways: []admin.GatewayStatus{}, Models: zone.Models, Zones: []admin.ZoneStatus{zone},
		}},
	}
	if a.specs.standalone.drains != nil {
		s.Drains = a.specs.standalone.drains.ListDrains(time.Now())
	}
	return s, nil
}

// answerUplinks returns the sessions with the region's gateways.
func (a *Agent) answerUplinks(context.Context) (*admin.UplinksAnswer, error) {
	return uplink.DescribeSessions(a.path().String(), nil, a.uplink), nil
}

func (a *Agent) answerExplain(_ context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
	recs, err := a.Explain(q)
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	return &admin.ExplainAnswer{Records: recs}, nil
}

// checkReady returns nil once at least one worker takes requests.
func (a *Agent) checkReady() error {
	if a.stopping.Load() {
		return errors.New("this instance is stopping")
	}
	ready := false
	a.scheduler.update(func(s *sched.Scheduler) { ready = s.HasReadyWorker() })
	if ready {
		return nil
	}
	return errors.New("no worker is ready")
}

// certificateExpiries returns the certificates whose expiry is shown to operators.
func (a *Agent) certificateExpiries() certfile.CertExpiries {
	var out certfile.CertExpiries
	if a.cfg.Certs != nil {
		out = a.cfg.Certs.Expiries()
	}
	return append(out, a.serverNames.credentials.certificateExpiries()...)
}

// listBases returns the sources of the configuration in force and their ages.
func (a *Agent) listBases() []admin.Basis {
	if len(a.cfg.Gateways) == 0 {
		return []admin.Basis{a.specBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	for _, s := range a.uplink.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.NewBasis("uplink", from, s.ConfirmedAt, detail))
	}
	return out
}

// specBasis returns the source of the spec of a standalone zone.
func (a *Agent) specBasis() admin.Basis {
	f := a.specs.specStatus()
	if f.Path == "" {
		return admin.Basis{What: "spec", From: "defaults", AgeMS: -1, Detail: "no spec file is given"}
	}
	return admin.NewBasis("spec", "file", f.ChangedAt, f.Path)
}

func (a *Agent) directiveBasis() admin.Basis {
	o := a.policy.Load()
	what := fmt.Sprintf("spec v%d, plan %d", o.specVersion, o.planEpoch)
	switch receivedAt := a.lastDirectiveAt.Load(); {
	case !o.persistedAt.IsZero():
		return admin.NewBasis("directive", "disk", o.persistedAt, what+", until a gateway is reachable")
	case receivedAt != 0 && o.index > 0:
		return admin.NewBasis("directive", "parent", time.Unix(0, receivedAt), what)
	}
	return admin.Basis{What: "directive", From: "defaults", AgeMS: -1, Detail: "waiting for a gateway"}
}
