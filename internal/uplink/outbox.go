package uplink

import (
	"time"

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	snapshotIntervalLarge = 10 * time.Second       // when the changes fill much of a datagram, and no snapshot is urgent
	snapshotIntervalSmall = 25 * time.Second       // when the changes are small: a snapshot costs both ends as much as many deltas
	snapshotIntervalIdle  = time.Minute            // when there are no changes
	largeDeltaBytes       = maxDatagramBytes / 2   // a delta of this many bytes is large
	minSnapshotGap        = 500 * time.Millisecond // between two urgent snapshots, for deltas that do not fit
	snapshotSilenceLimit  = time.Second            // without a message from the parent, before a snapshot in flight is abandoned
	snapshotTimeDivisor   = 5                      // urgent snapshots take at most one part in this many of a slow link's time
	maxUnconfirmed        = 4                      // datagrams in flight that the parent has not confirmed
	maxProbeWait          = time.Second            // the longest wait of a closed window before one probe datagram
	quietInterval         = 375 * time.Millisecond // with nothing new; a little less than two of the usual intervals
)

// pendingSummary is a summary, with the number of the first of the unbroken row of equal ones before it.
type pendingSummary struct {
	*capacity.Summary
	firstEqualSeq uint64
	isUrgent      bool // made because of SummarizeNow
}

// newPendingSummary adds a summary to the row of the previous one if their contents are equal.
func newPendingSummary(old *pendingSummary, s *capacity.Summary) *pendingSummary {
	if old != nil {
		same := *s
		same.Seq = old.Seq
		// The mark advances with time: if nothing else is new, it keeps its old value.
		same.HeldLeases.Mark, same.HeldLeases.AgeMillis = old.HeldLeases.Mark, old.HeldLeases.AgeMillis
		if same.Equal(*old.Summary) {
			return &pendingSummary{Summary: s, firstEqualSeq: old.firstEqualSeq}
		}
	}
	return &pendingSummary{Summary: s, firstEqualSeq: s.Seq}
}

// gapSlack is how early a summary may come before the gap that a parent requested: the child's timer is independent.
const gapSlack = 20 * time.Millisecond

// summaryOutbox decides what is sent up in one session of a child. It holds one summary, the newest, and never a
// queue.
type summaryOutbox struct {
	latest            *pendingSummary
	base              *capacity.Summary // the snapshot that the parent confirmed
	usePatches        bool              // the parent supports patches
	requestedGap      time.Duration     // between summaries, requested by the parent
	resync            bool              // the parent requested a snapshot
	lastHadChanges    bool              // the last delta had changes to base
	lastWasLarge      bool              // and filled much of a datagram
	snapshotInFlight  bool              // a snapshot is in flight
	snapshotStartedAt time.Time         // when the last snapshot left
	snapshotTook      time.Duration     // how long the last one was in flight
	lastOverflowed    bool              // the last delta did not fit
	probeTimeout      time.Duration     // how long a datagram's confirmation may take before it counts as missing
	probes            int               // datagrams sent through the closed window since the last message of the parent
	unconfirmed       []uint64          // numbers of datagrams in flight, at most maxUnconfirmed+1
	sentSeq           uint64            // the newest number sent
	sentAt            time.Time
	confirmedSeq      uint64 // the greatest number that the parent confirmed
	partOffset        int    // where the next partial delta begins
}

// setSummary replaces the summary to send.
func (o *summaryOutbox) setSummary(s *pendingSummary) { o.latest = s }

// nextDatagram returns what to send now, or nil: there is nothing new, the content is unchanged and was sent
// recently, the window is closed, or the summary can only go as a snapshot.
func (o *summaryOutbox) nextDatagram(now time.Time) []byte {
	s := o.latest
	if s == nil || s.Seq <= o.sentSeq || o.isQuiet(now) || o.isTooEarly(now) {
		return nil
	}
	if o.isWindowClosed() && now.Sub(o.sentAt) < o.retryWait() {
		return nil
	}
	b := o.encodeChanges(s.Summary)
	if b == nil {
		return nil
	}
	o.sentSeq, o.sentAt = s.Seq, now
	if o.isWindowClosed() {
		o.probes++
	}
	if len(o.unconfirmed) > maxUnconfirmed {
		o.unconfirmed = o.unconfirmed[1:]
	}
	o.unconfirmed = append(o.unconfirmed, s.Seq)
	return b
}

// isTooEarly reports whether the parent requested a longer gap. Urgent summaries and replacements of lost ones are
// sent nevertheless.
func (o *summaryOutbox) isTooEarly(now time.Time) bool {
	return !o.latest.isUrgent && !o.hasUnconfirmed() && now.Sub(o.sentAt) < o.requestedGap-gapSlack
}

// isWindowClosed reports whether so much is unconfirmed that either the link is slow, or many in a row were lost.
func (o *summaryOutbox) isWindowClosed() bool { return len(o.unconfirmed) >= maxUnconfirmed }

// retryWait is how long after the newest datagram its content may be sent again. Behind a closed window it doubles
// each time, like the probes of RFC 9002, section 6.2: losses in a row are overcome before the child counts as lost,
// and a slow link is not filled.
func (o *summaryOutbox) retryWait() time.Duration {
	return backoff.DelayAfter(max(o.probeTimeout, minSummaryGap), maxProbeWait, o.probes+1)
}

// isQuiet reports whether the parent holds the present content and got it so recently that it is not stale. With an
// unconfirmed datagram it is false: then every summary is sent, so that a loss makes nothing stale.
func (o *summaryOutbox) isQuiet(now time.Time) bool {
	return !o.lastOverflowed && !o.hasUnconfirmed() && o.isRepeat() && now.Sub(o.sentAt) < quietInterval
}

// isRepeat reports whether the summary to send only repeats what the parent holds.
func (o *summaryOutbox) isRepeat() bool { return o.confirmedSeq >= o.latest.firstEqualSeq }

// hasUnconfirmed reports whether the newest datagram is not confirmed yet.
func (o *summaryOutbox) hasUnconfirmed() bool { return len(o.unconfirmed) > 0 }

// encodeChanges encodes all changes to the confirmed snapshot if they fit, else as many of them as fit.
func (o *summaryOutbox) encodeChanges(s *capacity.Summary) []byte {
	base := o.base
	if base == nil || base.Boot != s.Boot {
		base = nil
	}
	var d capacity.SummaryDelta
	if base != nil {
		d = capacity.DiffSummaries(base, s)
	} else {
		d = capacity.DiffSummaries(&capacity.Summary{}, s)
	}
	if o.usePatches && base != nil {
		d.CompactChanges(base)
	}
	o.lastHadChanges = d.Len() > 0
	b := encodeDelta(&d)
	o.lastOverflowed, o.lastWasLarge = b == nil, len(b) > largeDeltaBytes
	if b != nil || base == nil {
		return b // without a snapshot, a part would look like a region with little capacity
	}
	for n := d.Len() / 2; ; n /= 2 {
		part := d.TakePart(o.partOffset, n)
		if b := encodeDelta(&part); b != nil {
			o.partOffset += n
			return b
		}
		if n == 0 {
			return nil
		}
	}
}

func encodeDelta(d *capacity.SummaryDelta) []byte {
	b, err := capacity.EncodeDelta(d)
	if err != nil || len(b) >= maxDatagramBytes {
		return nil
	}
	return append([]byte{kindDelta}, b...)
}

// nextSnapshot returns the summary to send as a snapshot now, or nil. The caller reports the outcome with
// finishSnapshot.
func (o *summaryOutbox) nextSnapshot(now time.Time) *capacity.Summary {
	if o.latest == nil || o.snapshotInFlight {
		return nil
	}
	since, least := now.Sub(o.snapshotStartedAt), min(max(minSnapshotGap, snapshotTimeDivisor*o.snapshotTook), snapshotIntervalLarge)
	most := snapshotIntervalIdle
	switch {
	case o.lastWasLarge || o.lastOverflowed:
		most = snapshotIntervalLarge
	case o.lastHadChanges:
		most = snapshotIntervalSmall
	}
	pressed := o.lastOverflowed || o.resync
	if o.base != nil && o.base.Boot == o.latest.Boot && since < most && !(pressed && since >= least) {
		return nil
	}
	o.snapshotInFlight, o.snapshotStartedAt, o.resync = true, now, false
	return o.latest.Summary
}

// shouldAbandonSnapshot reports whether the snapshot in flight should be cancelled, because the link is dead and not
// just slow: otherwise it would arrive outdated when the link recovers. If the link is only slow, the limit doubles
// each time.
func (o *summaryOutbox) shouldAbandonSnapshot(now time.Time, silence time.Duration) bool {
	most := max(snapshotSilenceLimit, 2*o.snapshotTook)
	return o.snapshotInFlight && o.base != nil && silence > most && now.Sub(o.snapshotStartedAt) > most
}

// finishSnapshot records the end of a snapshot; s is nil when it did not arrive.
func (o *summaryOutbox) finishSnapshot(s *capacity.Summary, now time.Time) {
	o.snapshotInFlight, o.snapshotTook = false, now.Sub(o.snapshotStartedAt)
	if s != nil {
		o.base, o.partOffset = s, 0
	}
}

// confirmUpTo opens the window: the parent holds this number or a newer one.
func (o *summaryOutbox) confirmUpTo(seq uint64) {
	o.confirmedSeq = max(o.confirmedSeq, seq)
	for len(o.unconfirmed) > 0 && o.unconfirmed[0] <= seq {
		o.unconfirmed, o.probes = o.unconfirmed[1:], 0
	}
}
