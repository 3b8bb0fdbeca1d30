package load

import (
	"cmp"
	"container/heap"
	"errors"
	"io"
	"time"
)

// Request is one request as the lab knows it. What is shared between requests (Prompt) is never written to.
type Request struct {
	// At is when it is due, from the start of the run.
	At time.Duration
	// ID numbers the requests of a feed in the order in which it hands them out, from 1 on.
	ID uint64
	// Region, Tenant and Model are places in the workload's lists of these.
	Region, Tenant, Model int32
	// Turn counts the session's requests, from 0 on.
	Turn int32
	// Session names the conversation, tree or agent that the request belongs to; never 0.
	Session uint64
	// Prompt is the text: equal pieces from the first on are a shared prefix. See gpu.Hashes.
	Prompt []Piece
	// PromptTokens is the prompt's length, at least 1.
	PromptTokens int
	// Output is how many tokens the answer has, at least 1.
	Output int
	// Answer is the ID of the answer's text where later prompts may repeat it, as a piece with this ID; 0 where none does.
	Answer uint64

	course course
}

// course is what a client does when it has an answer. push hands over what it asks next, so long after the answer.
type course interface {
	ended(r *Request, push func(think time.Duration, next *Request))
}

// Roots yields the requests that wait for no answer, in order of time. The error is io.EOF after the last one. It is
// used by one goroutine.
type Roots interface {
	Next() (*Request, error)
}

// refusedPause is what a client waits at least before it goes on after a request that was refused or broke off.
const refusedPause = time.Second

// Feed hands out the requests of an open or a closed loop in order of time. It is driven by virtual time: look with
// Peek, take with Pop, and tell of every end with Ended, for closed loops go on from there. It holds what is under way
// and the next root, however long the trace is. It is used by one goroutine.
type Feed struct {
	roots  Roots
	until  time.Duration
	every  time.Duration // least time from a request to what follows from it
	head   *Request      // the next root
	err    error         // why there is no head
	last   *Request      // root before it
	later  followUps
	issued uint64
	pushed uint64
	closer io.Closer
}

// NewFeed plays roots and what follows from them. Nothing is due after until; 0 is no bound. What roots read from may be
// an io.Closer and is then closed with the feed.
func NewFeed(roots Roots, until time.Duration) *Feed {
	f := &Feed{roots: roots, until: until}
	f.closer, _ = roots.(io.Closer)
	return f
}

// Peek says when the next request is due; false when none is known of: at the end, or until an answer ends. The error is
// the trace's, if it cannot be read to its end.
func (f *Feed) Peek() (time.Duration, bool, error) {
	r, err := f.next()
	if r == nil {
		return 0, false, err
	}
	return r.At, true, err
}

// Head is the request that Pop would take; nil when there is none.
func (f *Feed) Head() *Request {
	r, _ := f.next()
	return r
}

// Pop takes the request that Peek has told of; nil when there is none.
func (f *Feed) Pop() *Request {
	r, _ := f.next()
	switch {
	case r == nil:
		return nil
	case r == f.head:
		f.head = nil
	default:
		heap.Pop(&f.later)
	}
	f.issued++
	r.ID = f.issued
	return r
}

func (f *Feed) next() (*Request, error) {
	if f.head == nil && f.err == nil {
		f.head, f.err = f.roots.Next()
		if f.head != nil {
			f.last = f.head
		}
		if f.err == nil && f.until > 0 && f.head.At > f.until {
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
	if len(f.later) > 0 && (f.head == nil || f.later[0].request.At <= f.head.At) {
		return f.later[0].request, nil
	}
	return f.head, nil
}

// Ended tells that the answer to a request ended, wholly when ok. Its client goes on: a second later at the least where
// the request was refused or broke off.
func (f *Feed) Ended(r *Request, at time.Duration, ok bool) {
	if r.course == nil {
		return
	}
	r.course.ended(r, func(think time.Duration, next *Request) {
		if !ok {
			think = max(think, refusedPause)
		}
		if next.At = max(at+think, r.At+f.every); f.until > 0 && next.At > f.until {
			return
		}
		f.pushed++
		heap.Push(&f.later, followUp{next, f.pushed})
	})
}

// Short says when the last request of an open loop was due, where that is well before the feed's end: what follows is a
// fleet that nobody asks. A twentieth of the time may lie between two requests.
func (f *Feed) Short() (time.Duration, bool) {
	if f.until == 0 || f.last == nil || f.last.course != nil || !errors.Is(f.err, io.EOF) || f.last.At >= f.until-f.until/20 {
		return 0, false
	}
	return f.last.At, true
}

// Close closes what the roots read from.
func (f *Feed) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// followUp is a request that waits for its time, those of one moment in the order in which they came.
type followUp struct {
	request *Request
	order   uint64
}

type followUps []followUp

func (f followUps) Len() int      { return len(f) }
func (f followUps) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f followUps) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(f[i].request.At, f[j].request.At), cmp.Compare(f[i].order, f[j].order)) < 0
}
func (f *followUps) Push(x any) { *f = append(*f, x.(followUp)) }
func (f *followUps) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	(*f)[last] = followUp{}
	*f = (*f)[:last]
	return x
}
