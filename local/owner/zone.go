package owner

import (
	"slices"
	"strings"
	"time"
)

const (
	// silent is how long a gateway may say nothing before its word about who is live has no weight.
	silent = 2500 * time.Millisecond
	// missed is how long a sibling may not answer before it counts as gone, as long as a gateway takes to call it lost.
	missed = 1250 * time.Millisecond
	// MaxMembers bounds the instances of one zone, and the gateways whose word is kept.
	MaxMembers = 64
	// MaxWorkers bounds the workers that an instance is believed to know.
	MaxWorkers = 4096
)

// Member is one instance of the zone and where it takes requests, "host:port".
type Member struct {
	Name, Endpoint string
}

// Zone is what one instance knows of the others. It has one writer and no lock.
type Zone struct {
	self     string
	words    map[string]*word // by gateway
	last     []Member         // as the gateways last had it, without self
	contacts map[string]*contact
}

// word is what one gateway said of who is live.
type word struct {
	members []Member
	heard   time.Time
}

// contact is what a sibling said itself.
type contact struct {
	at      time.Time
	version uint64
	workers []string // sorted; nil: it has not said
}

// New makes the zone of an instance of that name, which knows nobody else yet.
func New(self string) *Zone {
	return &Zone{self: self, words: map[string]*word{}, contacts: map[string]*contact{}}
}

// Remember takes the members of an earlier life. They count as live for as long as a sibling may be silent, so that an
// instance that starts does not take at once what others serve.
func (z *Zone) Remember(members []Member, now time.Time) {
	z.last = z.others(members)
	for _, m := range z.last {
		z.contacts[m.Name] = &contact{at: now}
	}
}

// Told takes a gateway's word. One without members is of a release that says nothing of them, and changes nothing.
func (z *Zone) Told(gateway string, members []Member, now time.Time) {
	if len(members) == 0 {
		return
	}
	if z.words[gateway] == nil && len(z.words) >= MaxMembers {
		return
	}
	z.words[gateway] = &word{members: z.others(members), heard: now}
	z.recall(now)
}

// Heard notes that a gateway whose word is known is still there.
func (z *Zone) Heard(gateway string, at time.Time) {
	if w := z.words[gateway]; w != nil && at.After(w.heard) {
		w.heard = at
	}
}

// Met takes a sibling's answer. The workers that it has reached are as many as MaxWorkers, and nil when they are those of the
// version that it gave before.
func (z *Zone) Met(name string, version uint64, workers []string, now time.Time) {
	c := z.contacts[name]
	if c == nil {
		if !z.knows(name) {
			return
		}
		c = &contact{}
		z.contacts[name] = c
	}
	c.at = now
	if workers != nil {
		c.version = version
		c.workers = slices.Clone(workers[:min(len(workers), MaxWorkers)])
		slices.Sort(c.workers)
	}
}

// Version is that of the list of workers that a sibling gave last; 0 for none.
func (z *Zone) Version(name string) uint64 {
	if c := z.contacts[name]; c != nil {
		return c.version
	}
	return 0
}

// Siblings are the instances to ask whether they are there: all of whom a gateway speaks, or last spoke.
func (z *Zone) Siblings() []Member {
	out := slices.Clone(z.last)
	for _, w := range z.words {
		for _, m := range w.members {
			if !has(out, m.Name) {
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(len(out), MaxMembers)]
}

// others are the members without self, as many as may be.
func (z *Zone) others(members []Member) []Member {
	var out []Member
	for _, m := range members {
		if m.Name != z.self && m.Name != "" && !has(out, m.Name) && len(out) < MaxMembers {
			out = append(out, m)
		}
	}
	return out
}

// recall keeps who is live by the gateways that are heard, for when none is, and forgets whom nobody speaks of.
func (z *Zone) recall(now time.Time) {
	z.last = nil
	for name, w := range z.words {
		if now.Sub(w.heard) >= silent {
			delete(z.words, name)
			continue
		}
		for _, m := range w.members {
			if !has(z.last, m.Name) && len(z.last) < MaxMembers {
				z.last = append(z.last, m)
			}
		}
	}
	for name := range z.contacts {
		if !has(z.last, name) {
			delete(z.contacts, name)
		}
	}
}

func (z *Zone) knows(name string) bool {
	if has(z.last, name) {
		return true
	}
	for _, w := range z.words {
		if has(w.members, name) {
			return true
		}
	}
	return false
}

func has(members []Member, name string) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Name == name })
}

// live lists the instances that are taken to serve, self included, in order.
//
// Of whom all gateways that are heard speak, is live; of whom only some do, if it also answers us: a gateway that died with
// the sibling may not have been missed yet. Without any gateway, those of the last known are live that answer.
func (z *Zone) live(now time.Time) []string {
	heard := 0
	votes := map[string]int{}
	for _, w := range z.words {
		if now.Sub(w.heard) >= silent {
			continue
		}
		heard++
		for _, m := range w.members {
			votes[m.Name]++
		}
	}
	out := []string{z.self}
	if heard == 0 {
		for _, m := range z.last {
			if z.answers(m.Name, now) {
				out = append(out, m.Name)
			}
		}
	}
	for name, n := range votes {
		if n == heard || z.answers(name, now) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (z *Zone) answers(name string, now time.Time) bool {
	c := z.contacts[name]
	return c != nil && now.Sub(c.at) < missed
}
