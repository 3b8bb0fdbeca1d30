package kvevents

import "math"

// endOfReplay is the number of a replay's last message.
const endOfReplay = math.MaxUint64

// streamPosition is the position in a stream.
type streamPosition struct {
	begun         bool
	lastApplied   uint64 // the newest applied batch
	lastReceived  uint64 // highest live number: an engine that has not restarted never sends it again; a replay can be ahead of it
	receivedValid bool   // lastReceived is set
}

// sequenceCheck is the meaning of a number.
type sequenceCheck uint8

const (
	seqInOrder  sequenceCheck = iota // in order
	seqReplayed                      // a replay contained it already
	seqJoined                        // the stream starts here; earlier batches are unknown
	seqGap                           // batches before it are missing
	seqRestart                       // the engine has restarted
)

// checkSequence checks the number of a live message.
func (o *streamPosition) checkSequence(seq uint64) sequenceCheck {
	back := o.receivedValid && seq <= o.lastReceived
	o.lastReceived, o.receivedValid = seq, true
	switch {
	case back:
		return seqRestart
	case !o.begun && seq == 0:
		return seqInOrder
	case !o.begun:
		return seqJoined
	case seq <= o.lastApplied:
		return seqReplayed
	case seq == o.lastApplied+1:
		return seqInOrder
	}
	return seqGap
}

// markApplied records that the batch of that number is applied.
func (o *streamPosition) markApplied(seq uint64) { o.begun, o.lastApplied = true, seq }

// resetPosition forgets the position.
func (o *streamPosition) resetPosition() { o.begun, o.lastApplied, o.receivedValid = false, 0, false }

// markReconnected records that nothing up to the last batch is sent again.
func (o *streamPosition) markReconnected() { o.lastReceived, o.receivedValid = o.lastApplied, o.begun }
