package load

import (
	"cmp"
	"container/heap"
	"errors"
	"io"
	"time"
)

// Request is one request of a workload. What requests share (Prompt) is immutable.
type Request struct {
	// At is when it is due, from the start of the run.
	At time.Duration
	// ID numbers the requests of a feed in order, from 1 on.
	ID uint64
	// Region, Tenant and Model are indexes into the workload's lists.
	Region, Tenant, Model int32
	// Turn counts the session's requests, from 0 on.
	Turn int32
	// Session identifies the conversation, tree or agent of the request; never 0.
	Session uint64
	// Prompt is the text: equal pieces from the first on are a shared prefix. See gpu.HashBlocks.
	Prompt []Piece
	// PromptTokens is the prompt's length, at least 1.
	PromptTokens int
	// Output is how many tokens the answer has, at least 1.
	Output int
	// Answer is the ID of the answer's text if later prompts may contain it, as a piece with this ID; 0 otherwise.
	Answer uint64

	continuation continuation
}

// continuation produces a client's requests after an answer. push adds a request with its delay after the answer.
type continuation interface {
	pushNext(r *Request, push func(think time.Duration, next *Request))
}

// RootSource yields the requests that do not depend on an answer, in order of time. The error is io.EOF after the
// last one. It is used by one goroutine.
type RootSource interface {
	NextRequest() (*Request, error)
}

// minRefusedPause is the minimum pause of a client after a request that was refused or cut.
const minRefusedPause = time.Second

// Feed hands out the requests of an open or a closed loop in order of time. It is driven by virtual time: look with
// Peek, take with Pop, and report every end with FinishRequest, because closed loops continue from there. It holds
// the requests in progress and the next root, for any length of the trace. It is used by one goroutine.
type Feed struct {
	roots       RootSource
	endAt       time.Duration
	minInterval time.Duration // minimum time from a request to its follow-up
	head        *Request      // the next root
	err         error         // why head is nil
	lastRoot    *Request      // root before it
	pending     followUpHeap
	issued      uint64
	pushCount   uint64
	closer      io.Closer
}

// NewFeed plays roots and their follow-ups. Nothing is due after until; 0 is no bound. If roots is an io.Closer it is
// closed with the feed.
func NewFeed(roots RootSource, until time.Duration) *Feed {
	f := &Feed{roots: roots, endAt: until}
	f.closer, _ = roots.(io.Closer)
	return f
}

// Peek is when the next request is due; false when there is none: at the end, or until an answer ends. The error is
// that of a trace that cannot be read to its end.
func (f *Feed) Peek() (time.Duration, bool, error) {
	r, err := f.nextDue()
	if r == nil {
		return 0, false, err
	}
	return r.At, true, err
}

// Head is the request that Pop would take; nil without one.
func (f *Feed) Head() *Request {
	r, _ := f.nextDue()
	return r
}

// Pop takes the request that Peek reported; nil without one.
func (f *Feed) Pop() *Request {
	r, _ := f.nextDue()
	switch {
	case r == nil:
		return nil
	case r == f.head:
		f.head = nil
	default:
		heap.Pop(&f.pending)
	}
	f.issued++
	r.ID = f.issued
	return r
}

func (f *Feed) nextDue() (*Request, error) {
	if f.head == nil && f.err == nil {
		f.head, f.err = f.roots.NextRequest()
		if f.head != nil {
			f.lastRoot = f.head
		}
		if f.err == nil && f.endAt > 0 && f.head.At > f.endAt {
			f.head, f.err = nil, io.EOF
		}
	}
	err := f.err
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if len(f.pending) > 0 && (f.head == nil || f.pending[0].request.At <= f.head.At) {
		return f.pending[0].request, nil
	}
	return f.head, nil
}

// FinishRequest reports that the answer to a request ended, completely when ok. Its client continues: at least a
// second later if the request was refused or cut.
func (f *Feed) FinishRequest(r *Request, at time.Duration, ok bool) {
	if r.continuation == nil {
		return
	}
	r.continuation.pushNext(r, func(think time.Duration, next *Request) {
		if !ok {
			think = max(think, minRefusedPause)
		}
		if next.At = max(at+think, r.At+f.minInterval); f.endAt > 0 && next.At > f.endAt {
			return
		}
		f.pushCount++
		heap.Push(&f.pending, followUp{next, f.pushCount})
	})
}

// EarlyEnd is when the last request of an open loop was due, if that is well before the feed's end, so that the fleet
// is idle afterwards. A twentieth of the time may pass between two requests.
func (f *Feed) EarlyEnd() (time.Duration, bool) {
	if f.endAt == 0 || f.lastRoot == nil || f.lastRoot.continuation != nil || !errors.Is(f.err, io.EOF) || f.lastRoot.At >= f.endAt-f.endAt/20 {
		return 0, false
	}
	return f.lastRoot.At, true
}

// Close closes the roots.
func (f *Feed) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// followUp is a request that is not due yet; those of the same time are in order of creation.
type followUp struct {
	request *Request
	order   uint64
}

type followUpHeap []followUp

func (f followUpHeap) Len() int      { return len(f) }
func (f followUpHeap) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f followUpHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(f[i].request.At, f[j].request.At), cmp.Compare(f[i].order, f[j].order)) < 0
}
func (f *followUpHeap) Push(x any) { *f = append(*f, x.(followUp)) }
func (f *followUpHeap) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	(*f)[last] = followUp{}
	*f = (*f)[:last]
	return x
}
