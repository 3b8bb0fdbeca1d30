package fault

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// effect is what happens to what one direction of a link carries. Its zero value changes nothing.
type effect struct {
	delay, jitter time.Duration
	loss          float64 // of datagrams, or of TCP segments
	stall         time.Duration
	duplicate     float64
	reorder       float64
	reorderDelay  time.Duration
	rate          float64 // bit/s, 0: unlimited
	cut           bool    // nothing passes; TCP waits, datagrams are lost
	reset         bool    // TCP connections are reset
	discard       bool    // everything is read and lost
	halfOpen      bool    // the listener's side of TCP connections is closed, the dialer's is not
}

// addEffect combines the effects of two faults of one link.
func addEffect(a, b effect) effect {
	a.delay += b.delay
	a.jitter += b.jitter
	a.loss = eitherShare(a.loss, b.loss)
	a.stall = max(a.stall, b.stall)
	a.duplicate = eitherShare(a.duplicate, b.duplicate)
	a.reorder = eitherShare(a.reorder, b.reorder)
	a.reorderDelay = max(a.reorderDelay, b.reorderDelay)
	if b.rate > 0 && (a.rate == 0 || b.rate < a.rate) {
		a.rate = b.rate
	}
	a.cut, a.reset = a.cut || b.cut, a.reset || b.reset
	a.discard, a.halfOpen = a.discard || b.discard, a.halfOpen || b.halfOpen
	return a
}

// eitherShare is the share to which at least one of two independent things happens.
func eitherShare(a, b float64) float64 { return a + b - a*b }

// effectOf is the effect of a checked Spec.
func effectOf(s Spec) effect {
	in, _ := FindKind(s.Kind)
	duration := func(name string) time.Duration {
		d, _ := time.ParseDuration(in.param(s, name))
		return d
	}
	number := func(name string) float64 {
		v, _ := strconv.ParseFloat(in.param(s, name), 64)
		return v
	}
	switch s.Kind {
	case LinkDelay:
		return effect{delay: duration("delay")}
	case LinkJitter:
		return effect{jitter: duration("jitter")}
	case LinkLoss:
		return effect{loss: number("share"), stall: duration("stall")}
	case LinkDuplicate:
		return effect{duplicate: number("share")}
	case LinkReorder:
		return effect{reorder: number("share"), reorderDelay: duration("delay")}
	case LinkRate:
		return effect{rate: number("rate")}
	case LinkPartition, Partition:
		return effect{cut: true}
	case LinkReset:
		return effect{reset: true}
	case LinkBlackhole:
		return effect{discard: true}
	case LinkHalfOpen:
		return effect{halfOpen: true}
	}
	return effect{}
}

// Constants of shaping.
const (
	// segmentBytes is the payload of a TCP segment on Ethernet.
	segmentBytes = 1460
	// queueTime is how much a rate limit queues: then it drops datagrams and blocks TCP. 200 ms is a small router's buffer.
	queueTime = 200 * time.Millisecond
)

// shaper schedules what one direction of a link carries. It is pure: time and chance are arguments.
type shaper struct {
	base   time.Duration // one-way delay without any fault
	effect effect
	free   time.Time // when the wire is free, under a rate limit
	last   time.Time // when the last datagram in order arrives
}

// transmit reports when n bytes sent at now have left the wire's queue; ok is false if the queue is full.
func (s *shaper) transmit(now time.Time, n int) (at time.Time, ok bool) {
	if s.effect.rate == 0 {
		s.free = time.Time{}
		return now, true
	}
	at = now
	if s.free.After(at) {
		at = s.free
	}
	if at.Sub(now) > queueTime {
		return at, false
	}
	s.free = at.Add(time.Duration(float64(n) * 8 / s.effect.rate * float64(time.Second)))
	return s.free, true
}

// delayDraw is the one-way delay of one datagram or segment.
func (s *shaper) delayDraw(rng *rand.Rand) time.Duration {
	d := s.base + s.effect.delay
	if s.effect.jitter > 0 {
		d += time.Duration(rng.Int64N(int64(s.effect.jitter) + 1))
	}
	return d
}

// sendDatagram returns when a datagram arrives, once for each copy; none if it is lost.
func (s *shaper) sendDatagram(now time.Time, n int, rng *rand.Rand) (arrivals [2]time.Time, copies int) {
	e := &s.effect
	if e.cut || e.discard || e.loss > 0 && rng.Float64() < e.loss {
		return arrivals, 0
	}
	at, ok := s.transmit(now, n)
	if !ok {
		return arrivals, 0
	}
	at = at.Add(s.delayDraw(rng))
	if e.reorder > 0 && rng.Float64() < e.reorder {
		at = at.Add(e.reorderDelay)
	} else {
		if at.Before(s.last) {
			at = s.last
		}
		s.last = at
	}
	arrivals[0], arrivals[1] = at, at
	if e.duplicate > 0 && rng.Float64() < e.duplicate {
		return arrivals, 2
	}
	return arrivals, 1
}

// sendSegments returns when n bytes of a TCP connection arrive, not before the bytes in front of them, which arrive at
// after. wait is how long the sender has to wait before it sends more.
func (s *shaper) sendSegments(now time.Time, n int, after time.Time, rng *rand.Rand) (at time.Time, wait time.Duration) {
	at, ok := s.transmit(now, n)
	if !ok { // a reader that waited as it should does not get here; bytes of TCP are never dropped
		s.free = at.Add(time.Duration(float64(n) * 8 / s.effect.rate * float64(time.Second)))
		at = s.free
	}
	if queued := at.Sub(now); queued > queueTime {
		wait = queued - queueTime
	}
	at = at.Add(s.delayDraw(rng))
	if p := s.effect.loss; p > 0 {
		segments := float64((n + segmentBytes - 1) / segmentBytes)
		if rng.Float64() < 1-math.Pow(1-p, segments) {
			at = at.Add(s.effect.stall)
		}
	}
	if at.Before(after) {
		at = after
	}
	return at, wait
}
