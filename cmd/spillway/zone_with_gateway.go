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

// zoneWithGateway is a gateway and a zone in one process, without a global tier. Clients connect to the gateway, which enforces
// the tenants and limits of the spec file. The two communicate over loopback, with certificates that exist only in this
// process.
type zoneWithGateway struct {
	gateway *regional.Gateway
	zone    *local.Agent
}

// newZoneWithGateway opens both. Both use the name, region and dir of l; the admin API is the gateway's.
func newZoneWithGateway(g regional.Config, l local.Config) (*zoneWithGateway, error) {
	certs, err := identity.NewProcessCerts(
		identity.ID{Role: identity.RoleGateway, Region: l.Region, Name: l.Name},
		identity.ID{Role: identity.RoleLocal, Region: l.Region, Zone: l.Zone, Name: l.Name})
	if err != nil {
		return nil, err
	}
	s := &zoneWithGateway{}
	zoneMetrics := prometheus.NewRegistry()
	g.Name, g.Region, g.Certs, g.UplinkListen, g.RTTRetention = l.Name, l.Region, certs[0], "127.0.0.1:0", -1
	g.MoreMetrics = zoneMetrics
	if l.Dir != "" {
		g.Dir = filepath.Join(l.Dir, "gateway")
	}
	g.Queue = func(ctx context.Context) (*admin.QueueAnswer, error) { return s.zone.AdminBackend().Queue(ctx) }
	g.Autoscaling = func(ctx context.Context, model string) (*admin.AutoscalingAnswer, error) {
		return s.zone.AdminBackend().Autoscaling(ctx, model)
	}
	if s.gateway, err = regional.New(g); err != nil {
		return nil, err
	}
	l.Certs, l.InternalCerts, l.Plain, l.SpecFile = certs[1], true, false, ""
	l.Listen, l.Gateways, l.Registry = "127.0.0.1:0", []string{s.gateway.UplinkAddr().String()}, zoneMetrics
	l.Tracing.FollowParent = true // the gateway has decided
	l.Advertise, l.AdminSocket, l.AdminListen, l.MetricsListen = "", "", "", ""
	if s.zone, err = local.New(l); err != nil {
		return nil, errors.Join(err, s.gateway.Stop(context.Background()))
	}
	return s, nil
}

// Start starts the gateway and then the zone.
func (s *zoneWithGateway) Start(ctx context.Context) error {
	if err := s.gateway.Start(ctx); err != nil {
		return err
	}
	return s.zone.Start(ctx)
}

// Stop lets responses finish until ctx ends. The zone stops after the gateway, which depends on it.
func (s *zoneWithGateway) Stop(ctx context.Context) error {
	return errors.Join(s.gateway.Stop(ctx), s.zone.Stop(ctx))
}

// Reload reloads the spec, the workers and the certificates.
func (s *zoneWithGateway) Reload() error { return errors.Join(s.gateway.Reload(), s.zone.Reload()) }

// needsGateway reports whether a standalone zone has an access log, or a spec file that restricts clients: both are a gateway's.
func needsGateway(c *config.Local) (bool, error) {
	if c.Spec == "" || !c.HTTP.Plain || len(c.Gateways) > 0 {
		return false, nil
	}
	if c.AccessLog.Path != "" {
		return true, nil
	}
	f := specfile.New(c.Spec)
	v, err := f.ReadChange()
	if err != nil || v == nil {
		return false, err
	}
	return v.Spec.RestrictsCallers(), nil
}

// openZoneWithGateway opens a standalone zone behind its own gateway, which listens at the zone's address.
func openZoneWithGateway(c *config.Local, log *slog.Logger) (*zoneWithGateway, error) {
	l, err := buildLocalConfig(c, log)
	if err != nil {
		return nil, err
	}
	if c.Admin.Listen != "" && l.Certs == nil {
		return nil, fmt.Errorf("admin.listen needs certificates: set tls, or use admin.socket alone")
	}
	l.RegistrationCerts, l.DecisionFile = l.Certs, "" // the gateway writes the file
	return newZoneWithGateway(regional.Config{
		HTTPListen: c.HTTP.Listen, SpecFile: c.Spec, Log: log, Version: version, AccessLog: accessLogConfig(&c.AccessLog), Tracing: tracingConfig(&c.Tracing), DecisionBytes: c.Decisions.Memory, DecisionFile: c.Decisions.File, DecisionFileBytes: c.Decisions.MaxBytes,
		AdminSocket: l.AdminSocket, AdminListen: l.AdminListen, MetricsListen: l.MetricsListen, AdminGrants: l.AdminGrants, AdminCerts: l.Certs,
	}, l)
}
