package notify

import (
	"fmt"
	"time"
)

// FleetState is what a watcher compares, as one node sees it.
type FleetState struct {
	Unreachable map[string]bool // by region of the spec: whether none of its gateways is reachable
	Drains      []DrainState
	SpecVersion uint64
	Rollout     *RolloutState // nil: none is under way
	UsedUp      []UsedLimit
	// Leads is set on the leader. LeaderAt is when a leader other than this node was last known.
	Leads    bool
	LeaderAt time.Time
}

// DrainState is a drain in force.
type DrainState struct {
	Path, Actor, Reason string
	At                  time.Time
}

// RolloutState is a staged spec.
type RolloutState struct {
	Number     uint64
	Everywhere bool // the new spec is in force, and a rollback would replace it
}

// UsedLimit is a limit of the day that a tenant has used up.
type UsedLimit struct {
	Tenant, Resource string
	Day              int64
}

// Watcher finds events by comparing successive states. Every node runs one; only the leader's events are to be sent. When the leader
// fails, its successor returns the events that it has seen since the leader was last known, and nothing older: a change of the leader
// repeats nothing. It belongs to one goroutine.
type Watcher struct {
	begun       bool
	last        FleetState
	unreachable map[string]time.Time // since when, by region; of those whose event is not due yet also
	reported    map[string]bool      // regions with an event that they are unreachable
	usedUp      map[UsedLimit]bool
	remembered  []Event // of a node that does not lead
	led         bool
}

// NewWatcher returns a watcher. Its first state is where it begins: it has no events.
func NewWatcher() *Watcher {
	return &Watcher{unreachable: map[string]time.Time{}, reported: map[string]bool{}, usedUp: map[UsedLimit]bool{}}
}

// ObserveState returns the events to be sent at now.
func (w *Watcher) ObserveState(s *FleetState, now time.Time) []Event {
	found := w.compareStates(s, now)
	w.last, w.begun = *s, true
	if !s.Leads {
		w.led = false
		w.rememberEvents(found, s.LeaderAt, now)
		return nil
	}
	if !w.led {
		w.led = true
		found, w.remembered = append(w.remembered, found...), nil
	}
	return found
}

// CountUnsent returns how many events this node would send if it became the leader now.
func (w *Watcher) CountUnsent() int { return len(w.remembered) }

// rememberEvents remembers what the leader may not have lived to send. A leader that was known ObserveInterval after an event has
// found it.
func (w *Watcher) rememberEvents(found []Event, leaderAt, now time.Time) {
	w.remembered = append(w.remembered, found...)
	for len(w.remembered) > 0 && !w.remembered[0].At.Add(ObserveInterval).After(leaderAt) {
		w.remembered = w.remembered[1:]
	}
	for len(w.remembered) > maxTracked || len(w.remembered) > 0 && now.Sub(w.remembered[0].At) > handOverWindow {
		w.remembered = w.remembered[1:]
	}
}

func (w *Watcher) compareStates(s *FleetState, now time.Time) (out []Event) {
	out = w.compareRegions(s, now)
	out = append(out, w.compareLimits(s, now)...)
	if !w.begun {
		return nil
	}
	out = append(out, compareDrains(&w.last, s, now)...)
	return append(out, compareRollouts(&w.last, s, now)...)
}

// compareRegions reports a region once it has been unreachable for unreachableAfter, and when it is reachable again.
func (w *Watcher) compareRegions(s *FleetState, now time.Time) (out []Event) {
	for region, is := range s.Unreachable {
		since, was := w.unreachable[region]
		switch {
		case is && !was:
			w.unreachable[region] = now
			w.reported[region] = !w.begun // one that was unreachable before is not new
		case is && !w.reported[region] && now.Sub(since) >= unreachableAfter:
			w.reported[region] = true
			out = append(out, newEvent(RegionUnreachable, region, stamp(since), fmt.Sprintf("region %s is unreachable: no gateway of it has reported for %s. DNS answers without it.", region, now.Sub(since).Round(time.Second)), now))
		case !is && was:
			delete(w.unreachable, region)
			if w.reported[region] {
				out = append(out, newEvent(RegionBack, region, stamp(since), fmt.Sprintf("region %s is reachable again, after %s", region, now.Sub(since).Round(time.Second)), now))
			}
			delete(w.reported, region)
		}
	}
	for region := range w.unreachable {
		if _, known := s.Unreachable[region]; !known { // no longer in the spec
			delete(w.unreachable, region)
			delete(w.reported, region)
		}
	}
	return out
}

// compareLimits reports each limit once a day.
func (w *Watcher) compareLimits(s *FleetState, now time.Time) (out []Event) {
	today := int64(0)
	for _, u := range s.UsedUp {
		today = max(today, u.Day)
		if w.usedUp[u] {
			continue
		}
		w.usedUp[u] = true
		if w.begun {
			out = append(out, newEvent(LimitUsedUp, u.Tenant, fmt.Sprint(u.Resource, u.Day), fmt.Sprintf("tenant %s has used up its %s of the day: its requests are refused until midnight UTC", u.Tenant, u.Resource), now))
		}
	}
	for u := range w.usedUp {
		if today > 0 && u.Day < today {
			delete(w.usedUp, u)
		}
	}
	return out
}

func compareDrains(last, s *FleetState, now time.Time) (out []Event) {
	for _, d := range s.Drains {
		if !hasDrainOf(last.Drains, &d) {
			out = append(out, newEvent(DrainBegun, d.Path, stamp(d.At), fmt.Sprintf("drain of %s begun by %s: %s", d.Path, d.Actor, d.Reason), now))
		}
	}
	for _, d := range last.Drains {
		if !hasDrainOf(s.Drains, &d) {
			out = append(out, newEvent(DrainEnded, d.Path, stamp(d.At), fmt.Sprintf("drain of %s ended; it was begun by %s: %s", d.Path, d.Actor, d.Reason), now))
		}
	}
	return out
}

func hasDrainOf(list []DrainState, d *DrainState) bool {
	for i := range list {
		if list[i].Path == d.Path && list[i].At.Equal(d.At) {
			return true
		}
	}
	return false
}

// compareRollouts reports a staged spec that is no longer under way. What was in force then shows how it ended.
func compareRollouts(last, s *FleetState, now time.Time) []Event {
	was := last.Rollout
	if was == nil || s.Rollout != nil && s.Rollout.Number == was.Number {
		return nil
	}
	changed := s.SpecVersion != last.SpecVersion
	result := "rolled back"
	if changed != was.Everywhere {
		result = "promoted"
	}
	text := fmt.Sprintf("stage %d was %s: spec version %d is in force", was.Number, result, s.SpecVersion)
	return []Event{newEvent(RolloutEnded, fmt.Sprint("stage ", was.Number), result, text, now)}
}

// CertificateWatcher finds certificates that expire soon. Each node watches its own and sends the events itself.
type CertificateWatcher struct{ warnedAt map[string]time.Time }

// NewCertificateWatcher returns a watcher that has warned of nothing.
func NewCertificateWatcher() *CertificateWatcher { return &CertificateWatcher{map[string]time.Time{}} }

// ObserveExpiries returns the events at now. ends are the expiries of the node's certificates by name.
func (w *CertificateWatcher) ObserveExpiries(node string, ends map[string]time.Time, now time.Time) (out []Event) {
	for name, end := range ends {
		left := end.Sub(now)
		if left > certificateWarning {
			delete(w.warnedAt, name)
			continue
		}
		if last, warned := w.warnedAt[name]; warned && now.Sub(last) < certificateRepeat {
			continue
		}
		w.warnedAt[name] = now
		text := fmt.Sprintf("the certificate %s of node %s expires in %s, at %s", name, node, left.Round(time.Minute), end.UTC().Format(time.RFC3339))
		if left <= 0 {
			text = fmt.Sprintf("the certificate %s of node %s has expired at %s", name, node, end.UTC().Format(time.RFC3339))
		}
		out = append(out, newEvent(CertificateExpires, node+" "+name, stamp(end)+now.UTC().Format(time.DateOnly), text, now))
	}
	return out
}

// stamp writes a time in the same way on every node.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
