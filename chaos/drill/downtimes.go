package drill

import (
	"slices"
	"time"
)

// epochLag is how long a node may answer with an older epoch than another one: a plan reaches the nodes one after another.
const epochLag = 2 * time.Second

// lastBehind is the last time between two at which a node that was up answered with an older epoch than another one had
// for longer than epochLag; 0: never.
func lastBehind(l *EventLog, from, to time.Duration) (last time.Duration) {
	down := downTimes(l)
	var newest uint64
	var since time.Duration
	for i := range l.Events {
		e := &l.Events[i]
		switch {
		case e.Kind != DNSAnswered || down.isDown(e.Node, e.At):
		case e.Number > newest:
			newest, since = e.Number, e.At
		case e.Number < newest && e.At > since+epochLag && e.At >= from && e.At < to:
			last = e.At
		}
	}
	return last
}

// nodeDowns are the times when global nodes were down.
type nodeDowns map[string][]downSpan

type downSpan struct{ from, to time.Duration }

// downTimes reads when global nodes were down, from NodeState.
func downTimes(l *EventLog) nodeDowns {
	out := nodeDowns{}
	for i := range l.Events {
		e := &l.Events[i]
		if e.Kind != NodeState {
			continue
		}
		list := out[e.Node]
		switch open := len(list) > 0 && list[len(list)-1].to == 1<<62; {
		case e.Text == "down" && !open:
			out[e.Node] = append(list, downSpan{e.At, 1 << 62})
		case e.Text == "up" && open:
			list[len(list)-1].to = e.At
		}
	}
	return out
}

// isDown reports whether a node was down at a time.
func (d nodeDowns) isDown(node string, at time.Duration) bool {
	return slices.ContainsFunc(d[node], func(s downSpan) bool { return at >= s.from && at < s.to })
}
