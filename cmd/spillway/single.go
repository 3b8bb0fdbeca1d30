package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/specfile"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// single is a gateway and a zone in one process, without a global tier. Callers meet the gateway, which enforces what the
// spec file says of them. Between the two are loopback addresses and certificates that only this process has.
type single struct {
	gateway *regional.Gateway
	zone    *local.Agent
}

// openSingle opens both. The zone takes its name, region and dir from l; the admin interface is the gateway's.
func openSingle(g regional.Config, l local.Config) (*single, error) {
	certs, err := identity.Internal(
		identity.ID{Role: identity.RoleGateway, Region: l.Region, Name: l.Name},
		identity.ID{Role: identity.RoleLocal, Region: l.Region, Zone: l.Zone, Name: l.Name})
	if err != nil {
		return nil, err
	}
	s := &single{}
	zoneMetrics := prometheus.NewRegistry()
	g.Name, g.Region, g.Certs, g.UplinkListen, g.MeasuredFor = l.Name, l.Region, certs[0], "127.0.0.1:0", -1
	g.MoreMetrics = zoneMetrics
	if l.Dir != "" {
		g.Dir = filepath.Join(l.Dir, "gateway")
	}
	g.Queue = func(ctx context.Context) (*admin.QueueAnswer, error) { return s.zone.Backend().Queue(ctx) }
	g.Autoscaling = func(ctx context.Context, model string) (*admin.AutoscalingAnswer, error) {
		return s.zone.Backend().Autoscaling(ctx, model)
	}
	if s.gateway, err = regional.New(g); err != nil {
		return nil, err
	}
	l.Certs, l.InternalCerts, l.Plain, l.SpecFile = certs[1], true, false, ""
	l.Listen, l.Gateways, l.Registry = "127.0.0.1:0", []string{s.gateway.UplinkAddr().String()}, zoneMetrics
	l.Advertise, l.AdminSocket, l.AdminListen, l.MetricsListen = "", "", "", ""
	if s.zone, err = local.New(l); err != nil {
		return nil, errors.Join(err, s.gateway.Stop(context.Background()))
	}
	return s, nil
}

// Start serves until Stop.
func (s *single) Start(ctx context.Context) error {
	if err := s.gateway.Start(ctx); err != nil {
		return err
	}
	return s.zone.Start(ctx)
}

// Stop lets answers finish until ctx ends: the zone stops once the gateway needs it no more.
func (s *single) Stop(ctx context.Context) error {
	return errors.Join(s.gateway.Stop(ctx), s.zone.Stop(ctx))
}

// Reload reads the spec, the workers and the certificates again.
func (s *single) Reload() error { return errors.Join(s.gateway.Reload(), s.zone.Reload()) }

// needsGateway reports whether the spec file of a zone that stands alone limits callers, which a gateway enforces.
func needsGateway(c *config.Local) (bool, error) {
	if c.Spec == "" || !c.HTTP.Plain || len(c.Gateways) > 0 {
		return false, nil
	}
	f := specfile.New(c.Spec)
	v, err := f.Read()
	if err != nil || v == nil {
		return false, err
	}
	return v.Spec.LimitsCallers(), nil
}

// openZoneWithGateway opens a zone that stands alone behind a gateway of its own, at the zone's address.
func openZoneWithGateway(c *config.Local, log *slog.Logger) (*single, error) {
	l, err := localConfig(c, log)
	if err != nil {
		return nil, err
	}
	if c.Admin.Listen != "" && l.Certs == nil {
		return nil, fmt.Errorf("admin.listen needs certificates: set tls, or use admin.socket alone")
	}
	l.RegistrationCerts = l.Certs
	return openSingle(regional.Config{
		HTTPListen: c.HTTP.Listen, SpecFile: c.Spec, Log: log, Version: version,
		AdminSocket: l.AdminSocket, AdminListen: l.AdminListen, MetricsListen: l.MetricsListen, AdminGrants: l.AdminGrants, AdminCerts: l.Certs,
	}, l)
}
