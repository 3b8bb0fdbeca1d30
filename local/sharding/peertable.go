package sharding

import (
	"slices"
	"strings"
	"time"
)

const (
	// gatewayTimeout is how long a gateway's report of the live instances is valid without a sign of life from it.
	gatewayTimeout = 2500 * time.Millisecond
	// peerTimeout is how long a peer may leave heartbeats unanswered before it counts as dead. A gateway declares it unreachable
	// after the same time.
	peerTimeout = 1250 * time.Millisecond
	// MaxMembers bounds the instances of one zone, and the gateways whose reports are kept.
	MaxMembers = 64
	// MaxWorkers bounds the workers in a peer's report.
	MaxWorkers = 4096
)

// ZoneInstance is one instance of the zone and the address at which it takes requests, "host:port".
type ZoneInstance struct {
	Name, Endpoint string
}

// PeerTable is what one instance knows of the zone's other instances. It has one writer and no lock.
type PeerTable struct {
	self           string
	gatewayReports map[string]*gatewayReport // by gateway
	lastMembers    []ZoneInstance            // as last reported by the gateways, without self
	contacts       map[string]*peerContact
}

// gatewayReport is one gateway's report of the live instances.
type gatewayReport struct {
	members    []ZoneInstance
	receivedAt time.Time
}

// peerContact is the last answer of a peer.
type peerContact struct {
	answeredAt time.Time
	version    uint64
	workers    []string // sorted; nil: not reported
}

// New returns the table of the instance with that name, without any peers.
func New(self string) *PeerTable {
	return &PeerTable{self: self, gatewayReports: map[string]*gatewayReport{}, contacts: map[string]*peerContact{}}
}

// RestoreMembers loads the persisted members of an earlier run. They count as live for peerTimeout, so that an instance that
// starts does not take over at once what others serve.
func (z *PeerTable) RestoreMembers(members []ZoneInstance, now time.Time) {
	z.lastMembers = z.withoutSelf(members)
	for _, m := range z.lastMembers {
		z.contacts[m.Name] = &peerContact{answeredAt: now}
	}
}

// ApplyGatewayReport records a gateway's report. A report without members comes from a release that does not send them, and is
// ignored.
func (z *PeerTable) ApplyGatewayReport(gateway string, members []ZoneInstance, now time.Time) {
	if len(members) == 0 {
		return
	}
	if z.gatewayReports[gateway] == nil && len(z.gatewayReports) >= MaxMembers {
		return
	}
	z.gatewayReports[gateway] = &gatewayReport{members: z.withoutSelf(members), receivedAt: now}
	z.refreshMembers(now)
}

// RecordGatewayAlive extends the validity of a gateway's report: the gateway was connected at the given time.
func (z *PeerTable) RecordGatewayAlive(gateway string, at time.Time) {
	if w := z.gatewayReports[gateway]; w != nil && at.After(w.receivedAt) {
		w.receivedAt = at
	}
}

// RecordPeerAnswer records a peer's answer with the workers that it has reached, at most MaxWorkers. nil means that the list is
// unchanged.
func (z *PeerTable) RecordPeerAnswer(name string, version uint64, workers []string, now time.Time) {
	c := z.contacts[name]
	if c == nil {
		if !z.isKnownPeer(name) {
			return
		}
		c = &peerContact{}
		z.contacts[name] = c
	}
	c.answeredAt = now
	if workers != nil {
		c.version = version
		c.workers = slices.Clone(workers[:min(len(workers), MaxWorkers)])
		slices.Sort(c.workers)
	}
}

// PeerVersion is the version of a peer's last worker list; 0 for none.
func (z *PeerTable) PeerVersion(name string) uint64 {
	if c := z.contacts[name]; c != nil {
		return c.version
	}
	return 0
}

// KnownPeers lists the instances to send heartbeats to: all that a gateway reports, or last reported.
func (z *PeerTable) KnownPeers() []ZoneInstance {
	out := slices.Clone(z.lastMembers)
	for _, w := range z.gatewayReports {
		for _, m := range w.members {
			if !hasMember(out, m.Name) {
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(a, b ZoneInstance) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(len(out), MaxMembers)]
}

// withoutSelf returns the members without self, at most MaxMembers.
func (z *PeerTable) withoutSelf(members []ZoneInstance) []ZoneInstance {
	var out []ZoneInstance
	for _, m := range members {
		if m.Name != z.self && m.Name != "" && !hasMember(out, m.Name) && len(out) < MaxMembers {
			out = append(out, m)
		}
	}
	return out
}

// refreshMembers keeps the members that connected gateways report, for the time when no gateway is connected. It removes the
// contacts of all others.
func (z *PeerTable) refreshMembers(now time.Time) {
	z.lastMembers = nil
	for name, w := range z.gatewayReports {
		if now.Sub(w.receivedAt) >= gatewayTimeout {
			delete(z.gatewayReports, name)
			continue
		}
		for _, m := range w.members {
			if !hasMember(z.lastMembers, m.Name) && len(z.lastMembers) < MaxMembers {
				z.lastMembers = append(z.lastMembers, m)
			}
		}
	}
	for name := range z.contacts {
		if !hasMember(z.lastMembers, name) {
			delete(z.contacts, name)
		}
	}
}

func (z *PeerTable) isKnownPeer(name string) bool {
	if hasMember(z.lastMembers, name) {
		return true
	}
	for _, w := range z.gatewayReports {
		if hasMember(w.members, name) {
			return true
		}
	}
	return false
}

func hasMember(members []ZoneInstance, name string) bool {
	return slices.ContainsFunc(members, func(m ZoneInstance) bool { return m.Name == name })
}

// liveInstances lists the instances that count as live, self included, sorted.
//
// An instance is live if all connected gateways report it. If only some report it, it must also answer heartbeats: a gateway
// that died together with the instance may still seem connected. Without any gateway, the last known members that answer are
// live.
func (z *PeerTable) liveInstances(now time.Time) []string {
	connected := 0
	votes := map[string]int{}
	for _, w := range z.gatewayReports {
		if now.Sub(w.receivedAt) >= gatewayTimeout {
			continue
		}
		connected++
		for _, m := range w.members {
			votes[m.Name]++
		}
	}
	out := []string{z.self}
	if connected == 0 {
		for _, m := range z.lastMembers {
			if z.isAnswering(m.Name, now) {
				out = append(out, m.Name)
			}
		}
	}
	for name, n := range votes {
		if n == connected || z.isAnswering(name, now) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (z *PeerTable) isAnswering(name string, now time.Time) bool {
	c := z.contacts[name]
	return c != nil && now.Sub(c.answeredAt) < peerTimeout
}
