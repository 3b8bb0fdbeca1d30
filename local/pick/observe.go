package pick

import "math"

// Observation is what one scrape of a worker showed.
type Observation struct {
	// Running and Waiting sequences in the engine.
	Running, Waiting int64
	// KVUsed tokens by live sequences; negative when the engine does not say.
	KVUsed int64
	// MeanPrompt is the prompt length assumed for waiting sequences of others, in tokens.
	MeanPrompt int64
}

// Observe reconciles a worker's account with a scrape: what the scrape shows beyond our own is foreign, and KV cache
// beyond what we reserved is held whoever holds it, since answers may outgrow what was predicted. Our own side is the
// most there was since the scrape before, and a surplus counts only once two scrapes in a row show it, because a
// scrape and the ledger are never of the same moment.
func (l *Ledger) Observe(id int32, o Observation) {
	a := l.account(id)
	if a == nil {
		return
	}
	s := &l.slots[id]
	seqs := believable(o.Running) + believable(o.Waiting) - int64(s.peak)
	seqs = max(0, seqs)
	waiting := min(seqs, believable(o.Waiting))
	kv := int64(0)
	if o.KVUsed > s.peakKV {
		kv = min(o.KVUsed, maxAsk) - s.peakKV
	}
	a.foreignSeqs = int32(min(seqs, s.lastSeqs))
	s.foreignWaiting = int32(min(waiting, s.lastWaiting))
	a.foreignBacklog = int64(s.foreignWaiting) * max(0, min(o.MeanPrompt, math.MaxInt32))
	a.foreignKV = max(0, min(kv, s.lastKV))
	s.lastSeqs, s.lastWaiting, s.lastKV = seqs, waiting, kv
	s.peak, s.peakKV, s.since = a.running, a.kv-s.shares.tokens, 0
}

// maxSeqs bounds what is believed of a scrape, in sequences.
const maxSeqs = 1 << 20

func believable(n int64) int64 { return max(0, min(n, maxSeqs)) }
