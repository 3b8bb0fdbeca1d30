package global

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// nodeSnapshot is what this node answers from: a SteeringSnapshot with the agreed state that it was made of, and what
// DNS needs in its own form. It is immutable, except for its caches.
type nodeSnapshot struct {
	*snapshot.SteeringSnapshot
	policy       *nodePolicy
	atlas        *geo.Atlas
	state        *consensus.State
	source       stateSource
	planSince    time.Time
	stale        bool      // no contact with a leader for long
	leaderSeenAt time.Time // when a leader was last known

	records       []*dns.PreparedRecords // by region: its addresses in wire format
	answerKinds   dns.RecordKinds        // the record types that any of the regions answers
	signedZone    *dns.ZoneData          // the policy's zone, signed with the agreed keys; nil: the policy's
	cookieSecrets []dns.CookieSecret
	pickCache     *pickCache // nil: no cache
}

var _ dns.CompiledSnapshot = (*nodeSnapshot)(nil)

// newNodeSnapshot adds to a snapshot what DNS needs; the caller adds the rest.
func newNodeSnapshot(f *nodePolicy, st *consensus.State, core *snapshot.SteeringSnapshot) *nodeSnapshot {
	v := &nodeSnapshot{SteeringSnapshot: core, policy: f, atlas: f.atlas, state: st, records: make([]*dns.PreparedRecords, len(core.Regions))}
	for r := range v.records {
		v.records[r] = dns.NewPreparedRecords(v.Regions[r].Addrs, f.httpsPorts[r])
		v.answerKinds |= v.records[r].Kinds()
	}
	return v
}

// Zone returns the zone's own data.
func (v *nodeSnapshot) Zone() *dns.ZoneData {
	if v.signedZone != nil {
		return v.signedZone
	}
	return v.policy.zone
}

// AnswerService picks a region for the client. A child name is answered with its region in any state.
func (v *nodeSnapshot) AnswerService(id int, client netip.Addr) dns.ServiceAnswer {
	service, region := v.SplitNameID(id)
	out := dns.ServiceAnswer{TTL: v.AnswerTTL(service), FullTTL: v.TTLs[service], Stale: v.stale}
	if region < 0 {
		out.Kinds = v.answerKinds
		var cell int32
		region, out.ForcedByDrain, cell, out.Scope = v.findInScopeMap(service, client)
		if region < 0 {
			var split bool
			region, split, out.ForcedByDrain = v.pickCached(service, cell, client)
			if split {
				out.Scope = max(out.Scope, clientKeyBits(client))
			}
		}
	}
	if region >= 0 {
		out.Addrs, out.Records = v.Regions[region].Addrs, v.records[region]
	}
	out.OK = len(out.Addrs) > 0
	return out
}

// pickCached picks a region, or returns the cached pick of the cell.
func (v *nodeSnapshot) pickCached(service int, cell int32, client netip.Addr) (region int, split, forced bool) {
	entry := v.pickCache.cellEntry(service, cell)
	if entry != nil {
		if e := entry.Load(); e != 0 && e&cachedPicksDiffer == 0 {
			return int(e&cachedRegionMask) - 1, false, e&cachedPickForced != 0
		}
	}
	q := v.BuildQuery(service, cell, client, steer.RegionSet{})
	c := v.Table.PickRegion(&q)
	forced, differ := v.IsForcedByDrain(&q, c.Region)
	if entry != nil {
		entry.Store(encodePick(c.Region, c.Split || differ, forced))
	}
	return c.Region, c.Split, forced
}

// clientKeyBits returns how many bits of an address steer.NetworkKey uses, counted in the address as it was queried.
func clientKeyBits(a netip.Addr) uint8 {
	switch {
	case a.Is4():
		return steer.KeyBits4
	case a.Is4In6():
		return 96 + steer.KeyBits4
	}
	return steer.KeyBits6
}

// ExplainAnswer explains an answer in the texts of a TXT record.
func (v *nodeSnapshot) ExplainAnswer(id int, client netip.Addr) []string {
	service, region := v.SplitNameID(id)
	fix := v.atlas.Locate(client)
	reason := "named"
	if region < 0 {
		c := v.PickRegion(service, fix.Cell, client, steer.RegionSet{})
		region, reason = c.Region, c.Reason.String()
	}
	out := []string{"service=" + v.Spec.Services[service].Name, "reason=" + reason}
	if region >= 0 {
		r := &v.Spec.Regions[region]
		out = append(out, "region="+r.Name)
		if e, ok := v.EstimateRTT(fix.Cell, region); ok {
			out = append(out, rttTXTFields(&e)...)
		}
		out = append(out, "wait_ms="+formatMillis(v.Regions[region].Waits[service]), "region_state="+v.RegionStateName(region))
		if g := &v.Regions[region]; g.HasReport() && g.Group.State != capacity.Fresh {
			out = append(out, "region_age_ms="+formatMillis((g.Group.Age+time.Since(v.MadeAt)).Seconds()))
		}
	}
	out = append(out, locationTexts(fix)...)
	for r := range v.Spec.Regions {
		if s := v.RegionStateName(r); s != "fresh" && r != region {
			out = append(out, "not="+v.Spec.Regions[r].Name+" "+s)
		}
	}
	return append(out, v.versionTexts()...)
}

func (v *nodeSnapshot) versionTexts() []string {
	return []string{
		"plan_epoch=" + strconv.FormatUint(v.state.PlanEpoch, 10),
		"spec_version=" + strconv.FormatUint(v.Version, 10),
	}
}

// DescribeState describes the age of the snapshot.
func (v *nodeSnapshot) DescribeState() []string {
	confirmed := "yes"
	if v.stale {
		confirmed = "no"
	}
	return append(v.versionTexts(), "index="+strconv.FormatUint(v.state.Index, 10), "confirmed="+confirmed,
		"age_ms="+formatMillis(time.Since(v.MadeAt).Seconds()), "led_ms="+formatMillis(time.Since(v.leaderSeenAt).Seconds()))
}

// DescribeClient describes the location of a client's address.
func (v *nodeSnapshot) DescribeClient(client netip.Addr) []string {
	fix := v.atlas.Locate(client)
	return append([]string{"client=" + client.String(), "prefix=" + fix.Prefix.String(), "source=" + fix.Source}, locationTexts(fix)...)
}

func locationTexts(fix geo.AddressInfo) []string {
	if fix.Cell == geo.NoCell {
		return []string{"cell=none"}
	}
	out := []string{"cell=" + geo.CellName(fix.Cell)}
	if fix.Location.City != "" {
		out = append(out, "city="+fix.Location.City)
	}
	if fix.Location.Country != "" {
		out = append(out, "country="+fix.Location.Country)
	}
	return out
}

func formatMillis(seconds float64) string { return fmt.Sprintf("%.1f", seconds*1000) }

// A resolver caches an answer for the network of the answer's scope, so scopes are made as wide as possible: for each
// service with queries, adjacent networks that go to one region are merged. The map for that is built in the
// background, once its inputs have been stable for a moment; until then scopes are those of cells. Both give the same
// answers with different scopes.
const (
	scopeMapDelay      = 2 * time.Second
	scopeMapRestFactor = 10 // the pause after building, as a multiple of its duration
	maxScopeMaps       = 32 // services with a map, a few MiB each
)

// Values of a scope map: from scopeDiffer on, scopeDiffer plus a cell whose clients differ; below, entries of a
// cellPicks with the mark of a forced answer moved down.
const (
	scopeForced = 1 << 16
	scopeDiffer = 1 << 17
)

// buildScopeMapsLoop builds maps until ctx ends.
func buildScopeMapsLoop(ctx context.Context, current *currentSnapshot) {
	for sleepFor(ctx, scopeMapDelay/4) {
		v := current.Load()
		if v == nil || v.pickCache == nil || v.MadeAt.Sub(v.pickCache.madeAt) < scopeMapDelay {
			continue
		}
		service := v.nextUnmappedService()
		if service < 0 {
			continue
		}
		begin := time.Now()
		v.pickCache.scopeMaps[service].Store(v.buildScopeMap(service))
		if !sleepFor(ctx, scopeMapRestFactor*time.Since(begin)) {
			return
		}
	}
}

// nextUnmappedService returns a service with queries and without a map; -1: none.
func (v *nodeSnapshot) nextUnmappedService() int {
	for i := range v.pickCache.scopeMaps {
		if v.pickCache.scopeMaps[i].Load() == nil && v.pickCache.byService[i].Load() != nil {
			return i
		}
	}
	return -1
}

// buildScopeMap builds the map of one service.
func (v *nodeSnapshot) buildScopeMap(service int) *geo.ScopeMap {
	known := map[int32]int32{}
	return v.atlas.BuildScopeMap(func(cell int32) int32 {
		value, ok := known[cell]
		if !ok {
			value = v.scopeValue(service, cell)
			known[cell] = value
		}
		return value
	})
}

// scopeValue returns the map's value for a cell.
func (v *nodeSnapshot) scopeValue(service int, cell int32) int32 {
	q := v.BuildQuery(service, cell, netip.IPv4Unspecified(), steer.RegionSet{})
	c := v.Table.PickRegion(&q)
	forced, differ := v.IsForcedByDrain(&q, c.Region)
	switch {
	case c.Split || differ || c.Region < 0:
		return scopeDiffer + cell + 1
	case forced:
		return int32(c.Region+1) | scopeForced
	}
	return int32(c.Region + 1)
}

// findInScopeMap looks a client up in the service's map, or in that of cells. It returns the region, or -1 and the
// cell if clients differ or the region is unknown.
func (v *nodeSnapshot) findInScopeMap(service int, client netip.Addr) (region int, forced bool, cell int32, scope uint8) {
	if v.pickCache == nil || service >= len(v.pickCache.scopeMaps) {
		cell, scope = v.atlas.FindCell(client)
		return -1, false, cell, scope
	}
	m := v.pickCache.scopeMaps[service].Load()
	if m == nil {
		cell, scope = v.atlas.FindCell(client)
		return -1, false, cell, scope
	}
	value, scope := m.FindValue(client)
	if value >= scopeDiffer || value == 0 {
		return -1, false, max(value-scopeDiffer-1, geo.NoCell), scope
	}
	return int(value&cachedRegionMask) - 1, value&scopeForced != 0, geo.NoCell, scope
}

// currentSnapshot is the snapshot that this node answers from; nil until there is a spec.
type currentSnapshot struct {
	atomic.Pointer[nodeSnapshot]
	rebuild chan struct{} // wakes the snapshotBuilder
}

func (s *currentSnapshot) requireSnapshot() (*nodeSnapshot, error) {
	if v := s.Load(); v != nil {
		return v, nil
	}
	return nil, admin.UnavailableError("no spec is in force yet", "spillway apply -f spec.yaml")
}

// awaitSnapshot waits up to adminWaitTimeout until this node's snapshot shows an agreed change.
func (s *currentSnapshot) awaitSnapshot(ctx context.Context, shown func(*nodeSnapshot) bool) {
	ctx, cancel := context.WithTimeout(ctx, adminWaitTimeout)
	defer cancel()
	for {
		if v := s.Load(); v != nil && shown(v) {
			return
		}
		wakeLoop(s.rebuild)
		if !sleepFor(ctx, 5*time.Millisecond) {
			return
		}
	}
}

// CompiledNames returns the services whose scope maps are built. A stale snapshot has none: its answers carry a note.
func (v *nodeSnapshot) CompiledNames() (out []dns.CompiledName) {
	if v.pickCache == nil || v.stale {
		return nil
	}
	for i := range v.pickCache.scopeMaps {
		if m := v.pickCache.scopeMaps[i].Load(); m != nil {
			out = append(out, dns.CompiledName{Name: v.Spec.Services[i].Name, Service: i, Networks: m, TTL: v.AnswerTTL(i), Records: v.records})
		}
	}
	return out
}
