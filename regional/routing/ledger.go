package routing

import (
	"sort"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// SentLoad is work that was sent and is not yet in the receiver's summary.
type SentLoad struct {
	Tokens   int64 // prompt tokens not yet prefilled, without those expected in the cache
	KV       int64 // KV cache tokens of prompt and output
	Requests int64
}

// Ledger is the in-flight ledger of one gateway: what was sent to each child and is not in the child's summary yet. It has
// one writer at a time. A nil Ledger is empty.
//
// A request leaves the sums when the child's summary counts it (AckThrough) or when it ends (FinishTicket), whichever is
// first. So it is counted twice only while a summary is in transit, and always counted at least once.
type Ledger struct {
	next   uint64
	byPath map[capacity.Path]*pathLedger
}

// pathLedger is the ledger of one child. Entries are in the order of their tickets.
type pathLedger struct {
	entries  []sentEntry
	finished int // finished entries that are still in the list
	byModel  []modelLoad
}

type sentEntry struct {
	ticket uint64
	model  string
	load   SentLoad
	done   bool
}

type modelLoad struct {
	model string
	load  SentLoad
}

// NewLedger returns an empty ledger. Tickets are numbered from 1.
func NewLedger() *Ledger { return &Ledger{byPath: map[capacity.Path]*pathLedger{}} }

// IssueTicket enters a request and returns its ticket.
func (l *Ledger) IssueTicket(child capacity.Path, model string, tokens, kv int64) uint64 {
	l.next++
	a := l.byPath[child]
	if a == nil {
		a = &pathLedger{}
		l.byPath[child] = a
	}
	e := sentEntry{ticket: l.next, model: model, load: SentLoad{Tokens: tokens, KV: kv, Requests: 1}}
	a.entries = append(a.entries, e)
	a.addLoad(model, e.load, 1)
	return l.next
}

// LastTicket returns the newest ticket; 0 for none.
func (l *Ledger) LastTicket() uint64 { return l.next }

// RecordPrefilled removes the prompt of a request from the sums, because its first token has arrived. KV cache and slot
// stay.
func (l *Ledger) RecordPrefilled(child capacity.Path, ticket uint64) {
	if a, e := l.findOpen(child, ticket); e != nil {
		a.addLoad(e.model, SentLoad{Tokens: e.load.Tokens}, -1)
		e.load.Tokens = 0
	}
}

// FinishTicket removes a request. It does nothing for a ticket that is already acknowledged or finished.
func (l *Ledger) FinishTicket(child capacity.Path, ticket uint64) {
	a, e := l.findOpen(child, ticket)
	if e == nil {
		return
	}
	a.addLoad(e.model, e.load, -1)
	e.done, e.load = true, SentLoad{}
	a.finished++
	if a.finished*2 > len(a.entries) {
		a.compactEntries()
	}
}

// AckThrough removes every ticket of a child up to n, because the child's summary counts them from now on.
func (l *Ledger) AckThrough(child capacity.Path, n uint64) {
	a := l.byPath[child]
	if a == nil {
		return
	}
	k := 0
	for ; k < len(a.entries) && a.entries[k].ticket <= n; k++ {
		if a.entries[k].done {
			a.finished--
			continue
		}
		a.addLoad(a.entries[k].model, a.entries[k].load, -1)
	}
	a.entries = a.entries[:copy(a.entries, a.entries[k:])]
}

// ForgetPath removes a child with all its requests.
func (l *Ledger) ForgetPath(child capacity.Path) { delete(l.byPath, child) }

// UncreditedLoad returns the load of one model that a child's summary does not count yet.
func (l *Ledger) UncreditedLoad(child capacity.Path, model string) SentLoad {
	if l == nil {
		return SentLoad{}
	}
	if a := l.byPath[child]; a != nil {
		for i := range a.byModel {
			if a.byModel[i].model == model {
				return a.byModel[i].load
			}
		}
	}
	return SentLoad{}
}

// findOpen returns the entry of a request that is neither acknowledged nor finished, or nil.
func (l *Ledger) findOpen(child capacity.Path, ticket uint64) (*pathLedger, *sentEntry) {
	a := l.byPath[child]
	if a == nil {
		return nil, nil
	}
	i := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].ticket >= ticket })
	if i == len(a.entries) || a.entries[i].ticket != ticket || a.entries[i].done {
		return nil, nil
	}
	return a, &a.entries[i]
}

func (a *pathLedger) addLoad(model string, d SentLoad, sign int64) {
	for i := range a.byModel {
		if s := &a.byModel[i]; s.model == model {
			s.load.Tokens += sign * d.Tokens
			s.load.KV += sign * d.KV
			s.load.Requests += sign * d.Requests
			return
		}
	}
	a.byModel = append(a.byModel, modelLoad{model: model, load: d})
}

func (a *pathLedger) compactEntries() {
	kept := a.entries[:0]
	for _, e := range a.entries {
		if !e.done {
			kept = append(kept, e)
		}
	}
	a.entries, a.finished = kept, 0
}
