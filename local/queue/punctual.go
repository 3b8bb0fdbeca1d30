package queue

import "time"

// punctual lets those of a tenant's requests that can still meet their due moment go before those that cannot any more.
// Earliest due first is the best order while all can be in time. Once more is asked for than can be served, it keeps
// everybody waiting until just after it is of use: nobody is in time although most could be. Who has missed his moment
// waits for what the others leave, until his deadline; among themselves they keep their order.
//
// Only who stands first is looked at: all behind are due later. Who stood first in time and found no room, because his
// prompt is long, keeps his place: or under load the long ones would be those that are not served.
func (l *line[T]) punctual(ln *lane[T], now time.Time) {
	for len(ln.items) > 0 {
		it := ln.items[0]
		if it.missed || it.tried || it.Due.IsZero() || !now.After(it.Due.Add(-it.Lead)) {
			return
		}
		it.missed = true
		ln.missed += it.Work
		l.missed += it.Work
		ln.items.fix(0)
	}
}

// regain takes an item that leaves out of what cannot be in time.
func (l *line[T]) regain(it *Item[T]) {
	if it.missed {
		it.lane.missed -= it.Work
		l.missed -= it.Work
	}
}
