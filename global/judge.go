package global

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// newView joins a frame with agreed state and statements; plan and table are the caller's. settled says that this node
// has been up for long enough to take silence for loss, and q what the other nodes hear.
func newView(f *frame, st *consensus.State, children *capacity.View, q *quorum, now time.Time, settled bool) *View {
	v := &View{frame: f, geo: f.geo, made: now, state: st, children: children, quorum: q, regions: make([]regionView, len(f.spec.Regions))}
	for _, g := range children.Regions() {
		if r := f.region(g.Path.Region); r >= 0 {
			v.regions[r].heard, v.regions[r].group = true, g
		}
	}
	for r := range v.regions {
		v.judge(r, settled, now)
		v.kinds |= v.regions[r].ready.Kinds()
	}
	v.maskWorkerless()
	return v
}

// judge fills in what follows from a region's statements, drains and age. A region that this node does not hear is kept
// out of its answers unless another node hears it, and counts as dead when a majority does not.
func (v *View) judge(region int, settled bool, now time.Time) {
	r, decl := &v.regions[region], &v.spec.Regions[region]
	r.drained = regionDrained(v.state.Drains, decl, now) || r.heard && r.group.Summary.Draining
	if r.heard && r.group.State == capacity.Lost || !r.heard && settled {
		r.unheard, r.heardBy = true, v.quorum.hearing(decl.Name)
		if !v.quorum.muffled.Has(region) {
			r.gone, r.dead = len(r.heardBy) == 0, v.quorum.dead(decl.Name)
		}
		v.unheard.Add(region)
	}
	if r.dead {
		v.dead.Add(region)
	}
	if r.drained {
		v.drained.Add(region)
	}
	if r.gone {
		v.gone.Add(region)
	}
	r.addrs = addresses(decl, func(gateway string) bool {
		c, ok := v.children.Child(capacity.Path{Region: decl.Name, Instance: gateway})
		return !r.heard || ok && c.State != capacity.Lost && (!c.Summary.Draining || r.drained)
	})
	if len(r.addrs) == 0 {
		r.addrs = addresses(decl, func(string) bool { return true })
	}
	r.ready = dns.NewRecords(r.addrs, v.https[region])
	r.wait = make([]float64, len(v.spec.Services))
	for s := range r.wait {
		r.wait[s], _ = v.load(region, s)
	}
}

// httpsPort is where every gateway of the region speaks HTTPS; 0 where one does not, or not at the same port.
func httpsPort(r *spec.Region) uint16 {
	port := ""
	for i := range r.Gateways {
		u, err := url.Parse(r.Gateways[i].URL)
		if err != nil || u.Scheme != "https" {
			return 0
		}
		p := cmp.Or(u.Port(), "443")
		if port != "" && p != port {
			return 0
		}
		port = p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// regionDrained reports whether a region is drained itself, or each of its zones is.
func regionDrained(drains []consensus.Drain, r *spec.Region, now time.Time) bool {
	if len(drains) == 0 {
		return false
	}
	if drainedAt(drains, r.Name, now) {
		return true
	}
	for _, zone := range r.Zones {
		if !drainedAt(drains, r.Name+"/"+zone, now) {
			return false
		}
	}
	return len(r.Zones) > 0
}

func drainedAt(drains []consensus.Drain, path string, now time.Time) bool {
	for i := range drains {
		if drains[i].Path == path && (drains[i].Until.IsZero() || now.Before(drains[i].Until)) {
			return true
		}
	}
	return false
}

// load is a region's wait for a service, weighted by rate, in seconds, and how many workers are ready for it.
func (v *View) load(region, service int) (wait float64, ready int64) {
	r := &v.regions[region]
	rate := 0.0
	for i := range r.group.Summary.Models {
		m := &r.group.Summary.Models[i]
		if only := v.ready[service]; only != nil && !only[m.Name] {
			continue
		}
		ready += m.Ready
		if w, ok := m.Wait(spec.Standard); ok {
			p := float64(m.PrefillRate())
			wait += w.Seconds() * p
			rate += p
		}
	}
	if rate > 0 {
		wait /= rate
	}
	return wait, ready
}

// maskWorkerless adds, for each service, the regions that have no worker for it while another that is well has. Where the
// plan decides who goes where, warm workers are workers: it sends somebody to them only when that is sooner than waiting
// elsewhere, or as a pilot light. The other modes wake nobody while somebody is ready.
func (v *View) maskWorkerless() {
	v.lost = make([]steer.Set, len(v.spec.Services))
	for s := range v.lost {
		var without steer.Set
		some := false
		for r := range v.regions {
			_, ready := v.load(r, s)
			if v.regions[r].heard && !v.regions[r].gone && ready == 0 && !v.wakes(r, s) {
				without.Add(r)
			}
			some = some || ready > 0 && !v.regions[r].gone && !v.regions[r].drained
		}
		v.lost[s] = v.gone
		if some {
			v.lost[s] = v.gone.Union(&without)
		}
	}
}

// wakes reports whether clients of a service may be sent to a region to have its warm workers woken.
func (v *View) wakes(region, service int) bool {
	svc := &v.spec.Services[service]
	planned := svc.Mode == "" || svc.Mode == "latency" || svc.Mode == "failover" && svc.MinWarm > 0
	sum := &v.regions[region].group.Summary
	for i := range sum.Models {
		if only := v.ready[service]; planned && sum.Models[i].Warm > 0 && (only == nil || only[sum.Models[i].Name]) {
			return true
		}
	}
	return false
}

// addresses are those of the region's gateways that keep says, each once: gateways may share one, and a set of records
// holds no duplicates (RFC 2181, 5).
func addresses(r *spec.Region, keep func(gateway string) bool) []netip.Addr {
	var out []netip.Addr
	for i := range r.Gateways {
		if !keep(r.Gateways[i].Name) {
			continue
		}
		for _, a := range r.Gateways[i].Addresses {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}
