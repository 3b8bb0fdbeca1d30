package h3

import "time"

// measureAgain is the time between two measurements of one connection, for those that stay open for hours.
const measureAgain = time.Minute

// measureOnceIn measures unless that was done less than a time ago.
func (x *session) measureOnceIn(d time.Duration) {
	if x == nil {
		return
	}
	last, now := x.measured.Load(), time.Now().UnixNano()
	if now-last >= int64(d) && x.measured.CompareAndSwap(last, now) {
		x.measure()
	}
}

// measure tells the smoothed round trip, once there is one.
func (x *session) measure() {
	if x.s.cfg.Measured == nil {
		return
	}
	if rtt := x.conn.ConnectionStats().SmoothedRTT; rtt > 0 {
		x.s.cfg.Measured(x.conn.RemoteAddr(), rtt)
	}
}
