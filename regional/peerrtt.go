package regional

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	// probeEvery is the time between two looks at a peer that no request was sent to. Paths change slowly; but the first
	// request that is spilled should not have to find out how far it is.
	probeEvery = 30 * time.Second
	// probeTimeout bounds one look.
	probeTimeout = 5 * time.Second
	// maxPeerRTTs bounds the regions that are told of.
	maxPeerRTTs = 256
)

// peerRTTs are the round trips to other regions' gateways, as connections to them show.
type peerRTTs struct {
	mu      sync.Mutex
	regions map[string]*networkRTT
	cells   []peerCell // one for each region, in order
	// said is what was reported of them at made, and stays so until lapses; nil when something was measured since.
	said         []capacity.RTT
	made, lapses time.Time
}

// peerCell is a region as a summary names it.
type peerCell struct{ cell, region string }

func newPeerRTTs() *peerRTTs { return &peerRTTs{regions: map[string]*networkRTT{}} }

// add takes one sample.
func (p *peerRTTs) add(region string, rtt time.Duration, now time.Time) {
	if region == "" || rtt <= 0 || rtt > geo.MaxRTT {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.regions[region]
	if n == nil {
		if len(p.regions) >= maxPeerRTTs {
			return
		}
		n = &networkRTT{at: now}
		p.regions[region] = n
		c := peerCell{capacity.CellOfRegion(region), region}
		at, _ := slices.BinarySearchFunc(p.cells, c, comparePeerCell)
		p.cells = slices.Insert(p.cells, at, c)
	}
	p.said = nil
	n.ring[n.taken%rttRing] = uint32(min(rtt.Microseconds(), math.MaxUint32))
	n.taken++
	n.weight = min(n.weightAt(now)+1, maxNetworkWeight)
	n.at = now
}

// since is how long ago a region was measured; forever when it never was.
func (p *peerRTTs) since(region string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.regions[region]; n != nil {
		return now.Sub(n.at)
	}
	return math.MaxInt64
}

// report adds the peers to a list of cells, as a summary carries them. Ages are told to the minute: what has changed takes
// room in each statement. The slice is shared: do not modify it.
func (p *peerRTTs) report(cells []capacity.RTT, now time.Time) []capacity.RTT {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.regions) == 0 {
		return cells
	}
	if p.said == nil || now.Before(p.made) || !now.Before(p.lapses) {
		p.say(now)
	}
	if len(cells) == 0 {
		return p.said
	}
	out := slices.Concat(cells, p.said)
	if byCell := func(a, b capacity.RTT) int { return strings.Compare(a.Cell, b.Cell) }; !slices.IsSortedFunc(out, byCell) {
		slices.SortFunc(out, byCell)
	}
	return out
}

// say makes the report of the peers anew, and forgets those that were measured too long ago.
func (p *peerRTTs) say(now time.Time) {
	p.made, p.lapses = now, now.Add(time.Minute)
	p.said = make([]capacity.RTT, 0, len(p.cells))
	p.cells = slices.DeleteFunc(p.cells, func(c peerCell) bool {
		n := p.regions[c.region]
		age := max(now.Sub(n.at), 0)
		if age > geo.MeasuredFor {
			delete(p.regions, c.region)
			return true
		}
		age = age.Truncate(time.Minute)
		if next := n.at.Add(min(age+time.Minute, geo.MeasuredFor+1)); next.Before(p.lapses) {
			p.lapses = next
		}
		weight := int64(math.Round(n.weightAt(n.at.Add(age))))
		p.said = append(p.said, capacity.RTT{Cell: c.cell, Samples: weight, TotalMicros: weight * int64(n.median()), AgeSec: int64(age / time.Second)})
		return false
	})
	p.said = slices.Clip(p.said)
}

func comparePeerCell(a, b peerCell) int { return strings.Compare(a.cell, b.cell) }

// meterPeers makes a transport to peers tell how far they are whenever it connects to one.
func (g *Gateway) meterPeers(t *http.Transport) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		begun := time.Now()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		rtt := time.Since(begun)
		if tcp, ok := c.(*net.TCPConn); ok {
			if kernel, ok := tcpRTT(tcp); ok {
				rtt = kernel
			}
		}
		g.peerRTTs.add(g.state.Load().regionOf(addr), rtt, time.Now())
		return c, nil
	}
}

// regionOf is the peer region of an endpoint; empty when there is none.
func (s *state) regionOf(endpoint string) string {
	if s == nil {
		return ""
	}
	for i := range s.directive.Peers {
		if slices.ContainsFunc(s.directive.Peers[i].Gateways, func(x uplink.PeerGateway) bool { return x.Endpoint == endpoint }) {
			return s.directive.Peers[i].Region
		}
	}
	return ""
}

// probe looks at peers that no request was sent to lately, until ctx ends: a connection is opened as for a request, and
// closed.
func (g *Gateway) probe(ctx context.Context, t *http.Transport) {
	tick := time.NewTicker(probeEvery / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if endpoint := g.unmeasured(now); endpoint != "" {
				g.look(ctx, t, endpoint)
			}
		}
	}
}

// unmeasured is a gateway of the peer region that was measured longest ago, if that is long enough.
func (g *Gateway) unmeasured(now time.Time) string {
	st := g.state.Load()
	if !st.ready() {
		return ""
	}
	endpoint, oldest := "", probeEvery
	for i := range st.directive.Peers {
		p := &st.directive.Peers[i]
		if since := g.peerRTTs.since(p.Region, now); p.Region != g.cfg.Region && len(p.Gateways) > 0 && since > oldest {
			endpoint, oldest = p.Gateways[i%len(p.Gateways)].Endpoint, since
		}
	}
	return endpoint
}

func (g *Gateway) look(ctx context.Context, t *http.Transport, endpoint string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := t.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return // its summary says whether it is well
	}
	cfg := g.cfg.Certs.Client(relay.ALPN, isGateway)
	if host, _, err := net.SplitHostPort(endpoint); err == nil && cfg.ServerName == "" {
		cfg.ServerName = host
	}
	s := tls.Client(c, cfg)
	_ = s.HandshakeContext(ctx) // only so that the peer need not wonder who called and left
	_ = s.Close()
}

// peerNotes say in words how far peers are taken to be, in the order of the directive.
func (s *state) peerNotes() (out []string) {
	for i := range s.directive.Peers {
		p := &s.directive.Peers[i]
		what := "prior by distance, nothing measured"
		if p.RTTSamples > 0 {
			what = "measured, n=" + strconv.FormatInt(p.RTTSamples, 10)
		}
		out = append(out, p.Region+": rtt "+millis(p.RTT)+" ms, "+what)
	}
	return out
}
