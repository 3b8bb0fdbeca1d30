package inflight

import (
	"math"

	"github.com/spillway-lb/spillway/local/perfmodel"
)

// ScrapedLoad is the load that one scrape of a worker showed.
type ScrapedLoad struct {
	// Running and Waiting are sequences in the engine.
	Running, Waiting int64
	// KVUsed is tokens held by live sequences; negative when the engine does not report it.
	KVUsed int64
	// MeanPrompt is the assumed prompt length of foreign waiting sequences, in tokens.
	MeanPrompt int64
}

// ObserveScrape reconciles a worker's load with a scrape. What the scrape shows beyond our own load is foreign. KV
// cache beyond what we reserved counts as held, whichever sequence holds it, since answers may outgrow their
// predictions. Our own load is taken as the maximum since the last scrape, and a surplus counts only when two
// consecutive scrapes show it, because a scrape and the ledger never show the same moment.
func (l *Ledger) ObserveScrape(id int32, o ScrapedLoad) {
	a := l.TotalsOf(id)
	if a == nil {
		return
	}
	s := &l.slots[id]
	seqs := clampSeqs(o.Running) + clampSeqs(o.Waiting) - int64(s.peakRunning)
	seqs = max(0, seqs)
	waiting := min(seqs, clampSeqs(o.Waiting))
	kv := int64(0)
	if o.KVUsed > s.peakKV {
		kv = min(o.KVUsed, perfmodel.MaxRequestTokens) - s.peakKV
	}
	a.foreignSeqs = int32(min(seqs, s.lastForeignSeqs))
	s.foreignWaiting = int32(min(waiting, s.lastForeignWaiting))
	a.foreignBacklog = int64(s.foreignWaiting) * max(0, min(o.MeanPrompt, math.MaxInt32))
	a.foreignKV = max(0, min(kv, s.lastForeignKV))
	s.lastForeignSeqs, s.lastForeignWaiting, s.lastForeignKV = seqs, waiting, kv
	s.peakRunning, s.peakKV, s.sentSinceScrape = a.running, a.reservedKV-s.sharedPrefixes.sharedTokens, 0
}

func clampSeqs(n int64) int64 { return max(0, min(n, perfmodel.MaxScrapedSeqs)) }
