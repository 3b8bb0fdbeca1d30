package fleet

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/geo"
)

// Link is one connection between two nodes that passes through a relay of a fleet with Layout.Relays: From connects to
// Listen, and the relay to Forward, where To listens.
type Link struct {
	// Name is CLASS:FROM>TO.
	Name string
	// Class is raft (between global nodes), uplink (gateway to global node, local instance to gateway), peer (between
	// gateways), http (gateway to local instance) or worker (local instance to worker).
	Class string
	// From and To are node IDs. From dials.
	From, To string
	// Datagrams reports whether it carries UDP and not TCP.
	Datagrams bool
	// Listen is the relay's address. The peer and http links to one node share it, because a node advertises a single
	// address; the relay then tells who dialed by the owner of the socket.
	Listen, Forward netip.AddrPort
	// RTT is the round trip of the link without any fault.
	RTT time.Duration
}

// Round trips of links inside a region, as chaos/sim has them.
const (
	zoneRTT   = 500 * time.Microsecond
	workerRTT = 0
)

// relayTier is the third byte of the relays' addresses; see nodeAddrs.
const relayTier = 5

// linkBuilder gives links their addresses.
type linkBuilder struct {
	layout Layout
	count  int
	next   int // port, with OneAddress
	shared map[string]netip.AddrPort
	out    []Link
}

// BuildLinks lists the links of a layout with relays, in a fixed order; none without.
func (l Layout) BuildLinks() []Link {
	if !l.Relays {
		return nil
	}
	nodes := l.BuildNodes()
	b := &linkBuilder{layout: l, next: l.BasePort, shared: map[string]netip.AddrPort{}}
	for _, n := range nodes {
		b.next += len(n.Addr)
	}
	roles := map[string][]Node{}
	for _, n := range nodes {
		roles[n.Role] = append(roles[n.Role], n)
	}
	for _, to := range roles["global"] {
		for _, from := range roles["global"] {
			b.addLink("raft", from, to, false, false)
		}
		for _, from := range roles["regional"] {
			b.addLink("uplink", from, to, true, false)
		}
	}
	for _, to := range roles["regional"] {
		for _, from := range roles["regional"] {
			if from.Region != to.Region {
				b.addLink("peer", from, to, false, true)
			}
		}
		for _, from := range roles["local"] {
			if from.Region == to.Region {
				b.addLink("uplink", from, to, true, false)
			}
		}
	}
	for _, to := range roles["local"] {
		for _, from := range roles["regional"] {
			if from.Region == to.Region {
				b.addLink("http", from, to, false, true)
			}
		}
	}
	for _, to := range roles["worker"] {
		for _, from := range roles["local"] {
			if from.Region == to.Region && from.Zone == to.Zone {
				b.addLink("worker", from, to, false, false)
			}
		}
	}
	return b.out
}

// purposeByClass is the purpose of the address that a link's dialer reaches.
var purposeByClass = map[string]string{"raft": "raft", "uplink": "uplink", "peer": "peer", "http": "http", "worker": "http"}

func (b *linkBuilder) addLink(class string, from, to Node, datagrams, share bool) {
	if from.ID() == to.ID() {
		return
	}
	k := Link{Name: class + ":" + from.ID() + ">" + to.ID(), Class: class, From: from.ID(), To: to.ID(), Datagrams: datagrams, Forward: to.Addr[purposeByClass[class]], RTT: b.layout.linkRTT(from, to)}
	at := b.shared[class+to.ID()]
	if !share || !at.IsValid() {
		at = b.newAddr()
		b.shared[class+to.ID()] = at
	}
	k.Listen = at
	b.out = append(b.out, k)
}

// newAddr returns the next address of a relay: 127.<Net>.5.<i>:7900, continued in the following networks beyond 250.
func (b *linkBuilder) newAddr() netip.AddrPort {
	i := b.count
	b.count++
	if b.layout.OneAddress {
		b.next++
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(b.next-1))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(b.layout.Net + i/250), relayTier, byte(i%250 + 1)}), 7900)
}

// SiteOf is the region where a node is. Global nodes belong to no region, and are placed in the regions in turn.
func (l Layout) SiteOf(n Node) string {
	var i int
	if _, err := fmt.Sscanf(n.Name, "g%d", &i); n.Role == "global" && err == nil {
		return AllSites()[(i-1)%l.Regions].Name
	}
	return n.Region
}

// linkRTT is the round trip between two nodes by the distance of their regions, as chaos/sim has it.
func (l Layout) linkRTT(from, to Node) time.Duration {
	a, b := l.SiteOf(from), l.SiteOf(to)
	switch {
	case l.NoDelay || to.Role == "worker":
		return workerRTT
	case a == b:
		return zoneRTT
	}
	return geo.PriorRTT(siteLocation(a), siteLocation(b))
}

func siteLocation(name string) geo.Location {
	for _, s := range AllSites() {
		if s.Name == name {
			return geo.Location{Lat: s.Lat, Lon: s.Lon, Country: s.Country}
		}
	}
	return geo.Location{}
}
