package zone

import (
	"sort"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Load is work that was sent and is not yet in the receiver's summary.
type Load struct {
	Tokens   int64 // prompt tokens not yet prefilled, without those believed to be cached
	KV       int64 // KV tokens that prompt and output will take
	Requests int64
}

// Ledger holds what one gateway has sent to each child. It has one writer at a time: callers that share it lock it. A
// nil Ledger holds nothing.
//
// A request leaves the sums when the child's summary counts it (Ack), or when it ends (Finish), whichever is first: it
// is never counted twice for longer than a summary is on its way, and never not at all.
type Ledger struct {
	next     uint64
	accounts map[capacity.Path]*account
}

// account is one child's share. Entries are in the order of their tickets.
type account struct {
	entries []entry
	done    int // entries that are finished and still stand in the list
	sums    []sum
}

type entry struct {
	n     uint64
	model string
	load  Load
	done  bool
}

type sum struct {
	model string
	load  Load
}

// NewLedger makes an empty Ledger. Tickets count up from 1.
func NewLedger() *Ledger { return &Ledger{accounts: map[capacity.Path]*account{}} }

// Issue writes a request down and returns its ticket.
func (l *Ledger) Issue(child capacity.Path, model string, tokens, kv int64) uint64 {
	l.next++
	a := l.accounts[child]
	if a == nil {
		a = &account{}
		l.accounts[child] = a
	}
	e := entry{n: l.next, model: model, load: Load{Tokens: tokens, KV: kv, Requests: 1}}
	a.entries = append(a.entries, e)
	a.add(model, e.load, 1)
	return l.next
}

// Last is the newest ticket; 0 for none.
func (l *Ledger) Last() uint64 { return l.next }

// Prefilled takes the prompt of a request out of the sums: its first token has come. KV and slot stay.
func (l *Ledger) Prefilled(child capacity.Path, ticket uint64) {
	if a, e := l.find(child, ticket); e != nil {
		a.add(e.model, Load{Tokens: e.load.Tokens}, -1)
		e.load.Tokens = 0
	}
}

// Finish takes a request out. Finishing what is already credited or finished does nothing.
func (l *Ledger) Finish(child capacity.Path, ticket uint64) {
	a, e := l.find(child, ticket)
	if e == nil {
		return
	}
	a.add(e.model, e.load, -1)
	e.done, e.load = true, Load{}
	a.done++
	if a.done*2 > len(a.entries) {
		a.compact()
	}
}

// Ack credits a child with every ticket up to n: its summary counts them from now on.
func (l *Ledger) Ack(child capacity.Path, n uint64) {
	a := l.accounts[child]
	if a == nil {
		return
	}
	k := 0
	for ; k < len(a.entries) && a.entries[k].n <= n; k++ {
		if a.entries[k].done {
			a.done--
			continue
		}
		a.add(a.entries[k].model, a.entries[k].load, -1)
	}
	a.entries = a.entries[:copy(a.entries, a.entries[k:])]
}

// Forget drops a child that will not come back.
func (l *Ledger) Forget(child capacity.Path) { delete(l.accounts, child) }

// Uncredited is what a child's summary does not count yet, for one model.
func (l *Ledger) Uncredited(child capacity.Path, model string) Load {
	if l == nil {
		return Load{}
	}
	if a := l.accounts[child]; a != nil {
		for i := range a.sums {
			if a.sums[i].model == model {
				return a.sums[i].load
			}
		}
	}
	return Load{}
}

// find returns a request that is still open.
func (l *Ledger) find(child capacity.Path, ticket uint64) (*account, *entry) {
	a := l.accounts[child]
	if a == nil {
		return nil, nil
	}
	i := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].n >= ticket })
	if i == len(a.entries) || a.entries[i].n != ticket || a.entries[i].done {
		return nil, nil
	}
	return a, &a.entries[i]
}

func (a *account) add(model string, d Load, sign int64) {
	for i := range a.sums {
		if s := &a.sums[i]; s.model == model {
			s.load.Tokens += sign * d.Tokens
			s.load.KV += sign * d.KV
			s.load.Requests += sign * d.Requests
			return
		}
	}
	a.sums = append(a.sums, sum{model: model, load: d})
}

func (a *account) compact() {
	kept := a.entries[:0]
	for _, e := range a.entries {
		if !e.done {
			kept = append(kept, e)
		}
	}
	a.entries, a.done = kept, 0
}
