package world

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Config says what a planet consists of.
type Config struct {
	// Dir holds certificates and, with Keep, what nodes write down.
	Dir string
	// Keep gives global nodes and gateways a folder each, so that they come back as after a crash.
	Keep bool
	// Globals is the number of global nodes.
	Globals int
	// Regions, in order.
	Regions []Region
	// Gateways and Zones of each region, and Locals of each zone; 0 means 1. A region's workers are dealt out to its zones.
	Gateways, Zones, Locals int
	// Far gives connections the time that datagrams take: 80 ms to another region and back. Without it they take none.
	Far bool
	// Routing is what the spec says under that key, as YAML; empty: defaults.
	Routing string
	// TTL of the service's answers.
	TTL time.Duration
	// Steering is what the spec says under that key, as YAML; empty: defaults.
	Steering string
	// Tenants is what the spec says under that key, as YAML; empty: one tenant with the key Key.
	Tenants string
	// Seed of the stand-in workers.
	Seed uint64
	// Log receives the nodes' own; nil discards it.
	Log *slog.Logger
}

// Region is a place with clients and workers.
type Region struct {
	Name     string
	Lat, Lon float64
	Workers  int
}

// Everything's name, and what serves: one model, so that a region's capacity is one number.
const (
	Zone    = "spillway.test."
	Service = "chat." + Zone
	Model   = "Qwen2.5-7B"
	GPU     = "L4"
	Key     = "sk-world-0123456789abcdef"
)

// Three is three regions far from each other, with so many workers each.
func Three(workers ...int) []Region {
	out := []Region{{Name: "virginia", Lat: 39.04, Lon: -77.49}, {Name: "frankfurt", Lat: 50.11, Lon: 8.68}, {Name: "tokyo", Lat: 35.68, Lon: 139.69}}
	for i := range out {
		out[i].Workers = workers[i%len(workers)]
	}
	return out
}

// Client is an address in network n of region r's clients: each network is a resolver's, and has a key of its own.
func Client(r, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + r), byte(n >> 8), byte(n), 7})
}

// GlobalHost is where global node i lives.
func GlobalHost(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}) }

// GatewayHost is where region r's first gateway lives.
func GatewayHost(r int) netip.Addr { return GatewayHostOf(r, 0) }

// GatewayHostOf is where gateway g of region r lives.
func GatewayHostOf(r, g int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(r), byte(g + 1)}) }

// LocalHost is where instance l of zone z of region r lives.
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

// places is the geography of clients: what Client gives.
func (c *Config) places() string {
	out := ""
	for i, r := range c.Regions {
		out += fmt.Sprintf("%d.0.0.0/8, %g, %g, %s\n", 20+i, r.Lat, r.Lon, r.Name)
	}
	return out
}

func (c *Config) spec() string {
	out := "zone:\n  name: " + Zone + "\n  nameservers: [{name: ns1." + Zone + ", addresses: [" + GlobalHost(0).String() + "]}]\n"
	out += fmt.Sprintf("services:\n  - {name: %s, ttl: %s}\nregions:\n", Service, c.TTL)
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
	out += "models:\n  - {name: " + Model + "}\n"
	if c.Tenants == "" {
		c.Tenants = fmt.Sprintf("\n  - {name: acme, keys: [%q]}", spec.HashKey(Key))
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
