package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// defaultServiceName is the name that clients resolve if the scenario's spec has none.
const defaultServiceName = "chat.spillway.test."

// defaultLatitude is the latitude of a region without a location, because a spec requires one.
const defaultLatitude = 0.01

// hasUpperTiers reports whether the scenario has tiers above zones.
func (s *Scenario) hasUpperTiers() bool {
	f := s.Fleet.Regions
	return s.AlwaysGateways || len(f) > 1 || len(f[0].Zones) > 1 || f[0].Gateways > 1 || f[0].Zones[0].Locals > 1
}

// fleetSpec is the spec of the run: the scenario's, or with gateways a minimal one.
func fleetSpec(s *Scenario, reader *requestReader) (*spec.Spec, error) {
	sp := s.Spec
	if !s.hasUpperTiers() || IsBaseline(s.Policy) {
		return sp, nil
	}
	if sp == nil {
		var err error
		if sp, err = spec.Decode("the scenario's own spec", []byte(s.defaultSpecText())); err != nil {
			return nil, fmt.Errorf("making a spec of the fleet: %w", err)
		}
	}
	for i := range s.Fleet.Regions {
		if sp.FindRegion(s.Fleet.Regions[i].Name) == nil {
			return nil, fmt.Errorf("the spec does not list the fleet's region %s: add it under regions, or leave the spec out", s.Fleet.Regions[i].Name)
		}
	}
	if len(sp.Regions) != len(s.Fleet.Regions) {
		return nil, fmt.Errorf("the spec lists %d regions and the fleet has %d: list the same", len(sp.Regions), len(s.Fleet.Regions))
	}
	for _, t := range append([]string{reader.tenantName(0)}, s.Tenants...) {
		if sp.FindTenant(t) == nil {
			return nil, fmt.Errorf("the spec knows no tenant %s: declare it under tenants, or leave the spec out", t)
		}
	}
	return sp, nil
}

// defaultSpecText is a minimal spec that serves the fleet's models to all tenants.
func (s *Scenario) defaultSpecText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "zone:\n  name: spillway.test.\n  nameservers: [{name: ns1.spillway.test., addresses: [192.0.2.1]}]\n")
	ttl := s.Steering.TTL
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	fmt.Fprintf(&b, "services:\n  - {name: %s, ttl: %s}\nregions:\n", defaultServiceName, ttl)
	for i := range s.Fleet.Regions {
		f := &s.Fleet.Regions[i]
		var zones []string
		for k := range f.Zones {
			zones = append(zones, f.Zones[k].Name)
		}
		if f.Lat == 0 && f.Lon == 0 {
			f.Lat = defaultLatitude
		}
		var gateways []string
		for k := range max(f.Gateways, 1) {
			host := fmt.Sprintf("10.%d.%d.%d", 2+k, i/250, i%250+1)
			gateways = append(gateways, fmt.Sprintf("{name: %s, addresses: [%q], url: \"http://%s:8080\"}", instanceName(f.Name+"-gw", k, f.Gateways), host, host))
		}
		fmt.Fprintf(&b, "  - {name: %s, place: {lat: %g, lon: %g}, zones: [%s], gateways: [%s]}\n",
			f.Name, f.Lat, f.Lon, strings.Join(zones, ", "), strings.Join(gateways, ", "))
	}
	if s.IsolateRegions {
		b.WriteString("routing: {spill: false}\n")
	}
	b.WriteString("models:\n")
	for _, m := range s.Fleet.servedModels() {
		fmt.Fprintf(&b, "  - {name: %s}\n", m)
	}
	b.WriteString("tenants:\n")
	names := s.Tenants
	if len(names) == 0 {
		names = []string{spec.DefaultTenant}
	}
	for _, t := range names {
		fmt.Fprintf(&b, "  - {name: %s, keys: [%q]}\n", t, spec.HashKey("sk-lab-"+t))
	}
	return b.String()
}

// splitMix64 is the finalizer of splitmix64.
func splitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
