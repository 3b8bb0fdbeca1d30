package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/spec"
)

// InMemoryConfig describes a fleet in memory.
type InMemoryConfig struct {
	// Layout is the number of nodes, and its first sites are the regions. The nodes' addresses are the network's own;
	// OneAddress, BasePort and Net have no effect.
	Layout
	// RegionWorkers is the number of workers of each region, distributed over its zones; empty: Layout.Workers in each
	// zone.
	RegionWorkers []int
	// Dir holds certificates and, with KeepState, the nodes' state.
	Dir string
	// KeepState gives global nodes and gateways a state directory each, so that they restart as after a crash.
	KeepState bool
	// StreamDelays gives connections the delay of datagrams: 80 ms round trip to another region. Without it they have
	// none.
	StreamDelays bool
	// Routing is the value of that key of the spec, as YAML; empty: defaults.
	Routing string
	// TTL of the service's answers.
	TTL time.Duration
	// Steering is the value of that key of the spec, as YAML; empty: defaults.
	Steering string
	// Tenants is the value of that key of the spec, as YAML; empty: one tenant with the key memoryKey.
	Tenants string
	// Seed of the simulated workers.
	Seed uint64
	// Log receives the log messages of the nodes; nil discards them.
	Log *slog.Logger
}

// The model, the GPU and the API key of a fleet in memory. There is one model, so that a region's capacity is one
// number.
const (
	memoryModel = "Qwen2.5-7B"
	memoryGPU   = "L4"
	memoryKey   = "sk-memory-0123456789abcdef"
)

// listSites lists the locations of the regions, in order.
func (c *InMemoryConfig) listSites() []Site { return AllSites()[:c.Regions] }

// workersOf is the number of workers of region r.
func (c *InMemoryConfig) workersOf(r int) int {
	if len(c.RegionWorkers) == 0 {
		return c.Zones * c.Workers
	}
	return c.RegionWorkers[r]
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
func (c *InMemoryConfig) geoOverrides() string {
	out := ""
	for i, r := range c.listSites() {
		out += fmt.Sprintf("%d.0.0.0/8, %g, %g, %s\n", 20+i, r.Lat, r.Lon, r.Name)
	}
	return out
}

func (c *InMemoryConfig) specText() string {
	out := "zone:\n  name: " + DNSZone + "\n  nameservers: [{name: ns1." + DNSZone + ", addresses: [" + GlobalHost(0).String() + "]}]\n"
	out += fmt.Sprintf("services:\n  - {name: %s, ttl: %s}\nregions:\n", ServiceName, c.TTL)
	for i, r := range c.listSites() {
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
	out += "models:\n  - {name: " + memoryModel + "}\n"
	if c.Tenants == "" {
		c.Tenants = fmt.Sprintf("\n  - {name: acme, keys: [%q]}", spec.HashKey(memoryKey))
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

// WorkerRate is the rate of requests of one shape that one worker of a fleet in memory serves under saturation, in requests/s.
func WorkerRate(prompt, output int) (float64, error) {
	profile, err := gpu.LookupProfile(memoryGPU, memoryModel, 0)
	if err != nil {
		return 0, fmt.Errorf("selecting the simulated worker: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	const requests, counted = 400, 300 // the last ones run alone on the worker
	now := time.Unix(0, 0)
	for i := range requests {
		if _, err := engine.Submit(now, gpu.EngineRequest{PromptTokens: prompt, OutputTokens: output, Owner: i}); err != nil {
			return 0, fmt.Errorf("sending to the simulated worker: %w", err)
		}
	}
	for done := 0; done < counted; {
		next, ok := engine.NextEvent()
		if !ok {
			return 0, errors.New("the simulated worker is idle before all requests are done")
		}
		now = next
		for _, s := range engine.AdvanceTo(now) {
			if s.IsDone() {
				done++
			}
		}
	}
	return counted / now.Sub(time.Unix(0, 0)).Seconds(), nil
}
