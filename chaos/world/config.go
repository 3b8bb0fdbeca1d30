package world

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config describes a fleet.
type Config struct {
	// Dir holds certificates and, with KeepState, the nodes' state.
	Dir string
	// KeepState gives global nodes and gateways a state directory each, so that they restart as after a crash.
	KeepState bool
	// Globals is the number of global nodes.
	Globals int
	// Regions, in order.
	Regions []RegionConfig
	// Gateways and Zones of each region, and Locals of each zone; 0 means 1. A region's workers are distributed over
	// its zones.
	Gateways, Zones, Locals int
	// StreamDelays gives connections the delay of datagrams: 80 ms round trip to another region. Without it they have
	// none.
	StreamDelays bool
	// Routing is the value of that key of the spec, as YAML; empty: defaults.
	Routing string
	// TTL of the service's answers.
	TTL time.Duration
	// Steering is the value of that key of the spec, as YAML; empty: defaults.
	Steering string
	// Tenants is the value of that key of the spec, as YAML; empty: one tenant with the key APIKey.
	Tenants string
	// Seed of the simulated workers.
	Seed uint64
	// Log receives the log messages of the nodes; nil discards them.
	Log *slog.Logger
}

// RegionConfig is a location with clients and workers.
type RegionConfig struct {
	Name     string
	Lat, Lon float64
	Workers  int
}

// Names of the fleet. There is one model, so that a region's capacity is one number.
const (
	DNSZone     = "spillway.test."
	ServiceName = "chat." + DNSZone
	ModelName   = "Qwen2.5-7B"
	GPUName     = "L4"
	APIKey      = "sk-world-0123456789abcdef"
)

// ThreeRegions is three distant regions with the given numbers of workers.
func ThreeRegions(workers ...int) []RegionConfig {
	out := []RegionConfig{{Name: "virginia", Lat: 39.04, Lon: -77.49}, {Name: "frankfurt", Lat: 50.11, Lon: 8.68}, {Name: "tokyo", Lat: 35.68, Lon: 139.69}}
	for i := range out {
		out[i].Workers = workers[i%len(workers)]
	}
	return out
}

// ClientAddr is an address in network n of region r's clients. Each network has its own resolver and key.
func ClientAddr(r, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + r), byte(n >> 8), byte(n), 7})
}

// GlobalHost is the address of global node i.
func GlobalHost(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}) }

// GatewayHost is the address of region r's first gateway.
func GatewayHost(r int) netip.Addr { return GatewayHostOf(r, 0) }

// GatewayHostOf is the address of gateway g of region r.
func GatewayHostOf(r, g int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(r), byte(g + 1)}) }

// LocalHost is the address of instance l of zone z of region r.
func LocalHost(r, z, l int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 3, byte(r), byte(16*z + l + 1)})
}

// zoneName is a zone's name: a, b and so on.
func zoneName(z int) string { return string(rune('a' + z)) }

func gatewayName(region string, g int) string {
	if g == 0 {
		return region + "-gw"
	}
	return fmt.Sprintf("%s-gw%d", region, g+1)
}

func localName(region string, z, l int) string {
	if l == 0 {
		return region + "-" + zoneName(z)
	}
	return fmt.Sprintf("%s-%s%d", region, zoneName(z), l+1)
}

func workerHost(r, w int) netip.Addr { return netip.AddrFrom4([4]byte{10, 4, byte(r), byte(w + 1)}) }

// geoOverrides is the location database of clients, with the addresses of ClientAddr.
func (c *Config) geoOverrides() string {
	out := ""
	for i, r := range c.Regions {
		out += fmt.Sprintf("%d.0.0.0/8, %g, %g, %s\n", 20+i, r.Lat, r.Lon, r.Name)
	}
	return out
}

func (c *Config) specText() string {
	out := "zone:\n  name: " + DNSZone + "\n  nameservers: [{name: ns1." + DNSZone + ", addresses: [" + GlobalHost(0).String() + "]}]\n"
	out += fmt.Sprintf("services:\n  - {name: %s, ttl: %s}\nregions:\n", ServiceName, c.TTL)
	for i, r := range c.Regions {
		var zones, gateways []string
		for z := range c.Zones {
			zones = append(zones, zoneName(z))
		}
		for g := range c.Gateways {
			gw := GatewayHostOf(i, g)
			gateways = append(gateways, fmt.Sprintf("{name: %s, addresses: [%s], url: \"http://%s:8080\"}", gatewayName(r.Name, g), gw, gw))
		}
		out += fmt.Sprintf("  - {name: %s, place: {lat: %g, lon: %g}, zones: [%s], gateways: [%s]}\n",
			r.Name, r.Lat, r.Lon, strings.Join(zones, ", "), strings.Join(gateways, ", "))
	}
	out += "models:\n  - {name: " + ModelName + "}\n"
	if c.Tenants == "" {
		c.Tenants = fmt.Sprintf("\n  - {name: acme, keys: [%q]}", spec.HashKey(APIKey))
	}
	out += "tenants: " + c.Tenants + "\n"
	if c.Routing != "" {
		out += "routing: " + c.Routing + "\n"
	}
	if c.Steering != "" {
		out += "steering: " + c.Steering + "\n"
	}
	return out
}
