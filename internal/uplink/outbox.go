package uplink

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

const (
	snapshotEvery = 10 * time.Second       // when the differences to the last take much of a datagram, and nothing presses for one
	snapshotSome  = 25 * time.Second       // when they take little: a snapshot costs both ends as much as many deltas
	snapshotMost  = time.Minute            // when there are none
	snapshotWorth = maxDatagram / 2        // bytes of a delta that are much
	snapshotLeast = 500 * time.Millisecond // between two that are pressed for by deltas that do not fit
	snapshotDoubt = time.Second            // without a word from the parent, that a snapshot under way is left alone
	snapshotShare = 5                      // pressed snapshots take at most one part in this many of a slow link's time
	window        = 4                      // datagrams under way that the parent has not confirmed
	probeMost     = time.Second            // the longest that a closed window waits before one datagram tries
	quietFor      = 375 * time.Millisecond // with nothing new to say; a little less than two of the usual intervals
)

// statement is a summary, and the number of the first of the unbroken row of equal ones that it stands in.
type statement struct {
	*capacity.Summary
	since  uint64
	urgent bool // made because of a Wake
}

// follow puts a summary into the row of the one before it, if it says the same.
func follow(old *statement, s *capacity.Summary) *statement {
	if old != nil {
		same := *s
		same.Seq = old.Seq
		// The mark runs like a clock: where nothing else is new, it goes along with what is said anyway.
		same.Holding.Mark, same.Holding.AgeMillis = old.Holding.Mark, old.Holding.AgeMillis
		if same.Equal(*old.Summary) {
			return &statement{Summary: s, since: old.since}
		}
	}
	return &statement{Summary: s, since: s.Seq}
}

// paceSlack is how much too soon a statement may be for the gap that a parent asked for: it comes by a clock of its own.
const paceSlack = 20 * time.Millisecond

// outbox decides what goes up in one session of a child. It holds one statement, the newest, and never a queue.
type outbox struct {
	latest   *statement
	base     *capacity.Summary // the snapshot that the parent confirmed
	patches  bool              // the parent reads patches
	gap      time.Duration     // between statements, that the parent asked for
	resync   bool              // the parent asked for a snapshot
	differs  bool              // the last delta held differences to base
	bulky    bool              // and took much of a datagram
	inFlight bool              // a snapshot is under way
	begun    time.Time         // when the last snapshot left
	took     time.Duration     // how long the last one was under way
	crowded  bool              // the last delta did not fit
	patience time.Duration     // how long a datagram's confirmation may take before it is missed
	probes   int               // datagrams sent through the closed window since the parent was heard
	sent     []uint64          // numbers of datagrams under way, at most window+1
	sentSeq  uint64            // the newest number sent
	sentAt   time.Time
	known    uint64 // the greatest number that the parent is known to hold
	turn     int    // where the next partial delta begins
}

// offer replaces the statement to send.
func (o *outbox) offer(s *statement) { o.latest = s }

// datagram is what to send now, or nil: nothing new, nothing new to say and said not long ago, the window is closed, or
// the statement can only go as a snapshot.
func (o *outbox) datagram(now time.Time) []byte {
	s := o.latest
	if s == nil || s.Seq <= o.sentSeq || o.quiet(now) || o.early(now) {
		return nil
	}
	if o.closed() && now.Sub(o.sentAt) < o.wait() {
		return nil
	}
	b := o.encode(s.Summary)
	if b == nil {
		return nil
	}
	o.sentSeq, o.sentAt = s.Seq, now
	if o.closed() {
		o.probes++
	}
	if len(o.sent) > window {
		o.sent = o.sent[1:]
	}
	o.sent = append(o.sent, s.Seq)
	return b
}

// early says that the parent wants statements further apart. What is urgent goes all the same, and what makes a lost one
// good.
func (o *outbox) early(now time.Time) bool {
	return !o.latest.urgent && !o.unheard() && now.Sub(o.sentAt) < o.gap-paceSlack
}

// closed says that so much is unanswered that either the link is slow, or many in a row were lost.
func (o *outbox) closed() bool { return len(o.sent) >= window }

// wait is how long after the newest datagram the next may tell what that one should have told. Behind a closed window it
// doubles each time, as the probes of RFC 9002, section 6.2 do: losses in a row are overcome before the child counts as
// lost, and a slow link is not filled.
func (o *outbox) wait() time.Duration {
	return min(max(o.patience, statementGap)<<min(o.probes, 10), probeMost)
}

// quiet says that the parent holds what there is to say, and heard it so lately that nobody can take it for old. Once a
// datagram goes unanswered it is not quiet: then every statement goes, so that a loss ages nothing.
func (o *outbox) quiet(now time.Time) bool {
	return !o.crowded && !o.unheard() && o.repeats() && now.Sub(o.sentAt) < quietFor
}

// repeats says that the statement to send only repeats what the parent holds.
func (o *outbox) repeats() bool { return o.known >= o.latest.since }

// unheard says that the newest datagram was not answered yet.
func (o *outbox) unheard() bool { return len(o.sent) > 0 }

// encode writes the whole difference to the confirmed snapshot if it fits, else as many of the changes as do.
func (o *outbox) encode(s *capacity.Summary) []byte {
	base := o.base
	if base == nil || base.Boot != s.Boot {
		base = nil
	}
	var d capacity.Delta
	if base != nil {
		d = capacity.Diff(base, s)
	} else {
		d = capacity.Diff(&capacity.Summary{}, s)
	}
	if o.patches && base != nil {
		d.Compact(base)
	}
	o.differs = d.Len() > 0
	b := encodeDelta(&d)
	o.crowded, o.bulky = b == nil, len(b) > snapshotWorth
	if b != nil || base == nil {
		return b // without a snapshot, part of the truth would read as the whole of a poor region
	}
	for n := d.Len() / 2; ; n /= 2 {
		part := d.Part(o.turn, n)
		if b := encodeDelta(&part); b != nil {
			o.turn += n
			return b
		}
		if n == 0 {
			return nil
		}
	}
}

func encodeDelta(d *capacity.Delta) []byte {
	b, err := capacity.EncodeDelta(d)
	if err != nil || len(b) >= maxDatagram {
		return nil
	}
	return append([]byte{kindDelta}, b...)
}

// snapshot is the statement to send as a snapshot now, or nil. The caller reports the outcome by settle.
func (o *outbox) snapshot(now time.Time) *capacity.Summary {
	if o.latest == nil || o.inFlight {
		return nil
	}
	since, least := now.Sub(o.begun), min(max(snapshotLeast, snapshotShare*o.took), snapshotEvery)
	most := snapshotMost
	switch {
	case o.bulky || o.crowded:
		most = snapshotEvery
	case o.differs:
		most = snapshotSome
	}
	pressed := o.crowded || o.resync
	if o.base != nil && o.base.Boot == o.latest.Boot && since < most && !(pressed && since >= least) {
		return nil
	}
	o.inFlight, o.begun, o.resync = true, now, false
	return o.latest.Summary
}

// hopeless says that the snapshot under way should be taken back, since the link is dead and not just slow: or, once it is
// mended, that old story would arrive as news. A link that is slow after all is given twice the time at each turn.
func (o *outbox) hopeless(now time.Time, silence time.Duration) bool {
	most := max(snapshotDoubt, 2*o.took)
	return o.inFlight && o.base != nil && silence > most && now.Sub(o.begun) > most
}

// settle ends a snapshot's flight; s is nil when it did not arrive.
func (o *outbox) settle(s *capacity.Summary, now time.Time) {
	o.inFlight, o.took = false, now.Sub(o.begun)
	if s != nil {
		o.base, o.turn = s, 0
	}
}

// heard opens the window: the parent holds this number or a newer one.
func (o *outbox) heard(seq uint64) {
	o.known = max(o.known, seq)
	for len(o.sent) > 0 && o.sent[0] <= seq {
		o.sent, o.probes = o.sent[1:], 0
	}
}
