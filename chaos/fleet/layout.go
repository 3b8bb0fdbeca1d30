package fleet

import (
	"fmt"
	"net/netip"
	"runtime"
)

// Layout is the number of nodes of each kind of a fleet and where they listen. The zero value of every field has a
// default.
type Layout struct {
	// Globals is the number of global nodes. Default 3.
	Globals int
	// Regions is the number of regions, 1 to len(Sites). Default 3.
	Regions int
	// Gateways is the number of gateways in each region. Default 1.
	Gateways int
	// Zones is the number of zones in each region, 1 to 26. Default 2.
	Zones int
	// Locals is the number of local instances in each zone, which divide its workers among them. Default 1.
	Locals int `json:",omitempty"`
	// Workers is the number of simulated workers in each zone. Default 4.
	Workers int
	// OneAddress places everything on 127.0.0.1 with distinct ports, for systems without the rest of 127.0.0.0/8.
	OneAddress bool
	// BasePort is the first port used with OneAddress. Default 20000.
	BasePort int
	// Net is the second byte of the nodes' addresses without OneAddress, 0 to 89, so that several fleets can run on
	// one machine. Default 0.
	Net int `json:",omitempty"`
	// Relays puts a relay on each connection between two nodes, which delays it by their real distance and can injure it
	// (chaos/fault). It needs one process for each node (SpawnAll).
	Relays bool `json:",omitempty"`
	// NoDelay leaves out the delay by distance.
	NoDelay bool `json:",omitempty"`
}

// DefaultLayout is the demo's layout on this system.
func DefaultLayout() Layout {
	return Layout{Globals: 3, Regions: 3, Gateways: 1, Zones: 2, Locals: 1, Workers: 4, OneAddress: runtime.GOOS != "linux", BasePort: 20000}
}

// Site is a possible location of a region.
type Site struct {
	Name      string
	City      string
	Lat, Lon  float64
	Country   string // ISO 3166-1
	Residency string // the jurisdiction of a region here
}

// AllSites lists the sites in the order in which they are used.
func AllSites() []Site {
	return []Site{
		{"virginia", "Ashburn", 39.04, -77.49, "US", "us"},
		{"frankfurt", "Frankfurt", 50.11, 8.68, "DE", "eu"},
		{"tokyo", "Tokyo", 35.68, 139.69, "JP", "jp"},
		{"saopaulo", "Sao Paulo", -23.55, -46.63, "BR", "br"},
		{"mumbai", "Mumbai", 19.08, 72.88, "IN", "in"},
		{"sydney", "Sydney", -33.87, 151.21, "AU", "au"},
	}
}

// withDefaults replaces zero fields by their defaults.
func (l Layout) withDefaults() Layout {
	l.Locals = max(l.Locals, 1)
	return l
}

// flagText returns the layout as command-line flags.
func (l Layout) flagText() string {
	s := fmt.Sprintf("--globals %d --regions %d --gateways %d --zones %d --locals %d --workers %d", l.Globals, l.Regions, l.Gateways, l.Zones, l.Locals, l.Workers)
	if l.OneAddress {
		s += fmt.Sprintf(" --one-address --base-port %d", l.BasePort)
	}
	if l.Relays {
		s += " --relays"
	}
	if l.NoDelay {
		s += " --no-delay"
	}
	return s
}

// checkLayout refuses a layout that cannot be built, naming the flag to change.
func (l Layout) checkLayout() error {
	switch {
	case l.Globals < 1 || l.Globals > 9:
		return fmt.Errorf("--globals is %d: choose 1 to 9, odd numbers survive the most", l.Globals)
	case l.Regions < 1 || l.Regions > len(AllSites()):
		return fmt.Errorf("--regions is %d: choose 1 to %d", l.Regions, len(AllSites()))
	case l.Gateways < 1 || l.Gateways > 9:
		return fmt.Errorf("--gateways is %d: choose 1 to 9 for each region", l.Gateways)
	case l.Zones < 1 || l.Zones > 26:
		return fmt.Errorf("--zones is %d: choose 1 to 26 for each region", l.Zones)
	case l.Locals < 0 || l.Locals > 9:
		return fmt.Errorf("--locals is %d: choose 1 to 9 for each zone", l.Locals)
	case l.Workers < 1 || l.Workers > 200:
		return fmt.Errorf("--workers is %d: choose 1 to 200 for each zone", l.Workers)
	case l.NoDelay && !l.Relays:
		return fmt.Errorf("--no-delay is for --relays: without relays there is no delay")
	case l.Net < 0 || l.Net > 89:
		return fmt.Errorf("the layout's Net is %d (network 127.Net.0.0): choose 0 to 89, higher numbers are client addresses", l.Net)
	}
	return nil
}

// Node is one instance of a tier, or one worker, with its addresses.
type Node struct {
	Role   string // "global", "regional", "local" or "worker"
	Name   string
	Region string
	Zone   string
	Addr   map[string]netip.AddrPort // by purpose: dns, http, raft, uplink, peer, metrics
	GPU    string                    // workers only
	Model  string                    // workers only: the simulated model; its served id is in lower case
}

// portsByRole lists ports by role and purpose, used when every node has an address of its own.
var portsByRole = map[string]map[string]uint16{
	"global":   {"dns": 5300, "http": 8080, "raft": 7000, "uplink": 7100, "metrics": 9100},
	"regional": {"http": 8080, "peer": 8443, "uplink": 7200, "metrics": 9100},
	"local":    {"http": 8443, "metrics": 9100},
	"worker":   {"http": 8000},
}

// addrPurposes is in a fixed order, so that the same layout always gets the same ports.
var addrPurposes = []string{"dns", "http", "raft", "uplink", "peer", "metrics"}

// workerMix is the mix of hardware in a zone: worker i of a zone gets entry (zone + i) modulo its length, so that
// every zone serves both models and no two zones of a region are alike.
var workerMix = []struct{ gpu, model string }{
	{"H100", "Llama-3.1-8B"},
	{"A100-80", "Qwen2.5-7B"},
	{"L40S", "Llama-3.1-8B"},
	{"H100", "Qwen2.5-7B"},
	{"A100-80", "Llama-3.1-8B"},
	{"L4", "Qwen2.5-7B"},
}

// BuildNodes lists every node of the layout in starting order: workers first, then upward, so that parents start
// after their children.
func (l Layout) BuildNodes() []Node {
	var globals, gateways, locals, workers []Node
	for i := range l.Globals {
		globals = append(globals, Node{Role: "global", Name: fmt.Sprintf("g%d", i+1)})
	}
	for r, site := range AllSites()[:l.Regions] {
		for g := range l.Gateways {
			gateways = append(gateways, Node{Role: "regional", Name: fmt.Sprintf("%s-gw%d", site.Name, g+1), Region: site.Name})
		}
		for z := range l.Zones {
			zone := zoneName(z)
			for i := range max(l.Locals, 1) {
				locals = append(locals, Node{Role: "local", Name: fmt.Sprintf("%s-%s-local%d", site.Name, zone, i+1), Region: site.Name, Zone: zone})
			}
			for w := range l.Workers {
				s := workerMix[(2*r+3*z+w)%len(workerMix)]
				workers = append(workers, Node{Role: "worker", Name: fmt.Sprintf("w%d", w+1), Region: site.Name, Zone: zone, GPU: s.gpu, Model: s.model})
			}
		}
	}
	next := l.BasePort
	for tier, nodes := range [][]Node{globals, gateways, locals, workers} {
		for i := range nodes {
			nodes[i].Addr = l.nodeAddrs(tier+1, i, nodes[i].Role, &next)
		}
	}
	out := append(workers, locals...)
	return append(append(out, gateways...), globals...)
}

// zoneName is the name of zone z of a region: a, b and so on.
func zoneName(z int) string { return string(rune('a' + z)) }

// nodeAddrs gives node i of a tier its address for each purpose: 127.<Net>.<tier>.<i+1>, continued in the following
// networks beyond 250.
func (l Layout) nodeAddrs(tier, i int, role string, next *int) map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for _, p := range addrPurposes {
		port, used := portsByRole[role][p]
		if !used {
			continue
		}
		ip := netip.AddrFrom4([4]byte{127, byte(l.Net + i/250), byte(tier), byte(i%250 + 1)})
		if l.OneAddress {
			ip, port = netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(*next)
			*next++
		}
		out[p] = netip.AddrPortFrom(ip, port)
	}
	return out
}

// ID is the node's name in the fleet, also the base name of its files.
func (n Node) ID() string {
	if n.Role == "worker" {
		return n.Region + "-" + n.Zone + "-" + n.Name
	}
	return n.Name
}
