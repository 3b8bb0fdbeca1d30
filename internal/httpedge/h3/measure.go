package h3

import "time"

// remeasureInterval is the time between two RTT reports of one connection that stays open.
const remeasureInterval = time.Minute

// measureIfOlder reports the RTT unless the last report is more recent than d.
func (x *quicSession) measureIfOlder(d time.Duration) {
	if x == nil {
		return
	}
	last, now := x.measuredAt.Load(), time.Now().UnixNano()
	if now-last >= int64(d) && x.measuredAt.CompareAndSwap(last, now) {
		x.reportRTT()
	}
}

// reportRTT reports the smoothed RTT, once there is one.
func (x *quicSession) reportRTT() {
	if x.server.cfg.OnRTT == nil {
		return
	}
	if rtt := x.conn.ConnectionStats().SmoothedRTT; rtt > 0 {
		x.server.cfg.OnRTT(x.conn.RemoteAddr(), rtt)
	}
}
