package kvevents

import "math"

// endOfReplay is the number of a replay's last message.
const endOfReplay = math.MaxUint64

// order keeps a stream's place.
type order struct {
	begun  bool
	last   uint64 // the newest batch that was applied
	passed uint64 // a number that an engine that has not restarted never sends again; a replay runs ahead of it
	sure   bool   // passed means something
}

// news is what a number says.
type news uint8

const (
	newsNext    news = iota // in order
	newsOld                 // came by a replay already
	newsFirst               // the stream is joined here, and what was before is not known
	newsGap                 // batches before it are missing
	newsRestart             // the engine has begun anew
)

// next judges a live message's number.
func (o *order) next(seq uint64) news {
	back := o.sure && seq <= o.passed
	o.passed, o.sure = seq, true
	switch {
	case back:
		return newsRestart
	case !o.begun && seq == 0:
		return newsNext
	case !o.begun:
		return newsFirst
	case seq <= o.last:
		return newsOld
	case seq == o.last+1:
		return newsNext
	}
	return newsGap
}

// applied notes that the batch of that number is in.
func (o *order) applied(seq uint64) { o.begun, o.last = true, seq }

// restart forgets where the stream was.
func (o *order) restart() { o.begun, o.last, o.sure = false, 0, false }

// reconnect notes that nothing up to the last batch comes again.
func (o *order) reconnect() { o.passed, o.sure = o.last, o.begun }
