package global

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// View is the immutable snapshot that every reader uses: DNS, redirects, directives, status and explanations.
type View struct {
	*frame
	geo       *steer.Geography // the frame's, or with what was measured blended in
	near      *near            // nil: nothing was measured
	made      time.Time
	state     *consensus.State
	from      origin
	plan      *steer.Plan // nil: none yet
	planSince time.Time
	table     *steer.Table
	stale     bool      // no leader has confirmed anything for long
	led       time.Time // when a leader was last known
	children  *capacity.View
	quorum    *quorum
	regions   []regionView
	drained   steer.Set
	lost      []steer.Set // by service: lost, or without a worker for it while others have one
	gone      steer.Set   // lost, as far as this node and the others can tell
	restless  bool        // a drain or a failover is under way
	secrets   []dns.Secret
	sealed    *dns.Zone // the frame's, signed as is agreed; nil: the frame's
	kinds     dns.Kinds // what any of the regions answers
	memo      *memo     // nil: nothing is remembered
	unheard   steer.Set // lost to this node
	dead      steer.Set // not heard by a majority of nodes: what a plan does without
}

// regionView is what this node knows of one region.
type regionView struct {
	heard   bool           // false: no gateway has ever spoken
	group   capacity.Group // meaningful when heard
	drained bool
	unheard bool         // lost to this node
	heardBy []string     // other nodes that hear it all the same; filled in when unheard
	gone    bool         // unheard, and nobody else hears it
	dead    bool         // unheard, by a majority of nodes
	addrs   []netip.Addr // of the gateways that are well, or of all
	ready   *dns.Records // the same, as they go out
	wait    []float64    // by service, seconds
}

var _ dns.View = (*View)(nil)

// Zone is the zone's own data.
func (v *View) Zone() *dns.Zone {
	if v.sealed != nil {
		return v.sealed
	}
	return v.zone
}

// Lookup finds a service's or a child name's id.
func (v *View) Lookup(name []byte) (id int, ok bool) {
	id, ok = v.names[string(name)]
	return id, ok
}

// ServiceOf is the service that an id is of.
func (v *View) ServiceOf(id int) int {
	service, _ := v.parts(id)
	return service
}

// Exists reports whether something stands at or below name.
func (v *View) Exists(name string) bool {
	_, ok := v.exists[name]
	return ok
}

// Answer picks a region for the client; a child name stands for its region whatever its state.
func (v *View) Answer(id int, client netip.Addr) dns.Answer {
	service, region := v.parts(id)
	out := dns.Answer{TTL: v.ttl(service), Full: v.ttls[service], Stale: v.stale}
	if region < 0 {
		out.Kinds = v.kinds
		var cell int32
		region, out.Forced, cell, out.Scope = v.find(service, client)
		if region < 0 {
			var split bool
			region, split, out.Forced = v.send(service, cell, client)
			if split {
				out.Scope = max(out.Scope, keyBits(client))
			}
		}
	}
	if region >= 0 {
		out.Addrs, out.Ready = v.regions[region].addrs, v.regions[region].ready
	}
	out.OK = len(out.Addrs) > 0
	return out
}

// send picks a region, or recalls what was picked for the cell.
func (v *View) send(service int, cell int32, client netip.Addr) (region int, split, forced bool) {
	entry := v.memo.entry(service, cell)
	if entry != nil {
		if e := entry.Load(); e != 0 && e&memoDiffer == 0 {
			return int(e&memoRegion) - 1, false, e&memoForced != 0
		}
	}
	q := v.query(service, cell, client, steer.Set{})
	c := v.table.Pick(&q)
	forced, differ := v.forced(&q, c.Region)
	if entry != nil {
		entry.Store(note(c.Region, c.Split || differ, forced))
	}
	return c.Region, c.Split, forced
}

// keyBits is how much of an address steer.Key looks at, counted in the address as it was asked for.
func keyBits(a netip.Addr) uint8 {
	switch {
	case a.Is4():
		return steer.KeyBits4
	case a.Is4In6():
		return 96 + steer.KeyBits4
	}
	return steer.KeyBits6
}

func (v *View) query(service int, cell int32, client netip.Addr, barred steer.Set) steer.Query {
	return steer.Query{
		Service: service, Cell: cell, Key: steer.Key(client),
		Drained: v.drained, Lost: v.lost[service], Barred: barred,
	}
}

func (v *View) pick(service int, cell int32, client netip.Addr, barred steer.Set) steer.Choice {
	q := v.query(service, cell, client, barred)
	return v.table.Pick(&q)
}

// barred is the set of regions that a tenant's residency forbids; nil tenant: none.
func (v *View) barred(t *spec.Tenant) steer.Set {
	var out steer.Set
	if t == nil {
		return out
	}
	for r := range v.spec.Regions {
		if !v.spec.Permits(t, &v.spec.Regions[r]) {
			out.Add(r)
		}
	}
	return out
}

// Why explains an answer in the texts of a TXT record.
func (v *View) Why(id int, client netip.Addr) []string {
	service, region := v.parts(id)
	fix := v.atlas.Locate(client)
	reason := "named"
	if region < 0 {
		c := v.pick(service, fix.Cell, client, steer.Set{})
		region, reason = c.Region, c.Reason.String()
	}
	out := []string{"service=" + v.spec.Services[service].Name, "reason=" + reason}
	if region >= 0 {
		r := &v.spec.Regions[region]
		out = append(out, "region="+r.Name)
		if e, ok := v.estimate(fix.Cell, region); ok {
			out = append(out, rttTexts(&e)...)
		}
		out = append(out, "wait_ms="+millis(v.regions[region].wait[service]), "region_state="+v.stateOf(region))
		if g := &v.regions[region]; g.heard && g.group.State != capacity.Fresh {
			out = append(out, "region_age_ms="+millis((g.group.Age+time.Since(v.made)).Seconds()))
		}
	}
	out = append(out, placeTexts(fix)...)
	for r := range v.spec.Regions {
		if s := v.stateOf(r); s != "fresh" && r != region {
			out = append(out, "not="+v.spec.Regions[r].Name+" "+s)
		}
	}
	return append(out, v.versions()...)
}

func (v *View) versions() []string {
	return []string{
		"plan_epoch=" + strconv.FormatUint(v.state.PlanEpoch, 10),
		"spec_version=" + strconv.FormatUint(v.version, 10),
	}
}

// State says how new the View is.
func (v *View) State() []string {
	confirmed := "yes"
	if v.stale {
		confirmed = "no"
	}
	return append(v.versions(), "index="+strconv.FormatUint(v.state.Index, 10), "confirmed="+confirmed,
		"age_ms="+millis(time.Since(v.made).Seconds()), "led_ms="+millis(time.Since(v.led).Seconds()))
}

// Whoami says what is known of a client's address.
func (v *View) Whoami(client netip.Addr) []string {
	fix := v.atlas.Locate(client)
	return append([]string{"client=" + client.String(), "prefix=" + fix.Prefix.String(), "source=" + fix.Source}, placeTexts(fix)...)
}

func placeTexts(fix geo.Fix) []string {
	if fix.Cell == geo.NoCell {
		return []string{"cell=none"}
	}
	out := []string{"cell=" + geo.CellName(fix.Cell)}
	if fix.Place.City != "" {
		out = append(out, "city="+fix.Place.City)
	}
	if fix.Place.Country != "" {
		out = append(out, "country="+fix.Place.Country)
	}
	return out
}

func millis(seconds float64) string { return fmt.Sprintf("%.1f", seconds*1000) }

// stateOf is the word for a region's state: what keeps clients away first.
func (v *View) stateOf(region int) string {
	r := &v.regions[region]
	switch {
	case r.drained:
		return "draining"
	case !r.heard:
		return "unknown"
	}
	return r.group.State.String()
}
