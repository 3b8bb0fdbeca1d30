package world

import (
	"fmt"
	"log/slog"
	"net/netip"
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
	// Regions, in order. Each has one gateway and one zone.
	Regions []Region
	// TTL of the service's answers.
	TTL time.Duration
	// Steering is what the spec says under that key, as YAML; empty: defaults.
	Steering string
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

// GatewayHost is where region r's gateway lives.
func GatewayHost(r int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(r), 1}) }

func localHost(r int) netip.Addr { return netip.AddrFrom4([4]byte{10, 3, byte(r), 1}) }

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
		gw := GatewayHost(i)
		out += fmt.Sprintf("  - {name: %s, place: {lat: %g, lon: %g}, zones: [a], gateways: [{name: %s-gw, addresses: [%s], url: \"http://%s:8080\"}]}\n",
			r.Name, r.Lat, r.Lon, r.Name, gw, gw)
	}
	out += "models:\n  - {name: " + Model + "}\n"
	out += fmt.Sprintf("tenants:\n  - {name: acme, keys: [%q]}\n", spec.HashKey(Key))
	if c.Steering != "" {
		out += "steering: " + c.Steering + "\n"
	}
	return out
}
