package routing

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Policy is the routing part of the policy in force. It is immutable. The zero value has no peers and accepts every
// zone.
type Policy struct {
	// Region is the gateway's own region.
	Region string
	// Zones are the zones that the spec lists for the region; empty: any name is a zone of it.
	Zones []string
	// ZoneWeights are the weights of zones among near-equal ones; missing ones count as 1.
	ZoneWeights map[string]float64
	// Drains are the drains of regions and zones.
	Drains []PathDrain
	// Peers are the other regions of the spec, as the last directive reports them.
	Peers []PeerReport
	// ReachableGateways are the endpoints of the peers' gateways that the global tier can reach.
	ReachableGateways map[string]bool
	// ReceivedAt is when the directive arrived, by the local clock.
	ReceivedAt time.Time
	// FromDisk is set when the directive was loaded from disk: the age of its peer summaries is unknown.
	FromDisk bool
	// MaxHeadroomAge is how old a peer's headroom may be to be used for a spill.
	MaxHeadroomAge time.Duration
	// SpillShare is the part of a peer's headroom that this gateway may use for spills.
	SpillShare float64
}

// PathDrain removes the traffic of a region ("fra") or a zone ("fra/a").
type PathDrain struct {
	Path string
	// Until is the end of the drain; zero: until it is removed.
	Until time.Time
	// Start and Over: traffic leaves evenly from Start until Over has passed. Over 0: it leaves at once.
	Start time.Time
	Over  time.Duration
}

// PeerReport is another region as the last directive reports it.
type PeerReport struct {
	Region   string
	Gateways []PeerGateway // with an endpoint; shared by views
	// Summary is the region's summary, Age its age when the directive arrived. Nil: the region has not reported.
	Summary   *capacity.Summary
	Age       time.Duration
	RTT       time.Duration // zero when unknown
	Residency []string
}

// HasZone reports whether the region may have a zone of that name.
func (p *Policy) HasZone(name string) bool {
	return len(p.Zones) == 0 || slices.Contains(p.Zones, name)
}

// DrainShare returns the share of new traffic that a drain leaves to a region (zone empty) or a zone at now: 0 when
// the drain is complete, 1 without a drain.
func (p *Policy) DrainShare(region, zone string, now time.Time) float64 {
	path := region
	if zone != "" {
		path += "/" + zone
	}
	for i := range p.Drains {
		d := &p.Drains[i]
		switch {
		case d.Path != path:
		case !d.Until.IsZero() && !now.Before(d.Until):
			return 1
		default:
			return spec.DrainShare(d.Start, d.Over, now)
		}
	}
	return 1
}

// IsDrained reports whether a region (zone empty) or a zone is fully drained at now.
func (p *Policy) IsDrained(region, zone string, now time.Time) bool {
	return p.DrainShare(region, zone, now) == 0
}
