package relay

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// maxReplay bounds what is kept of a body that streams, in bytes, for a second try.
const maxReplay = 128 << 10

// maxNaming bounds how far into a message its model may stand, in bytes.
const maxNaming = 64 << 10

// Replay is the body of a request that streams. Its beginning is kept, so that the request can be tried elsewhere as long
// as no more than that has been read. A read that waits for its client can be given up: what then comes is kept too.
type Replay struct {
	src    io.Reader
	rc     *http.ResponseController // sets the deadline of reads; nil: they have none
	bounds BodyBounds
	every  bool // each read is bounded, and not the first alone

	mu    sync.Mutex
	kept  []byte // from base on
	base  int64
	total int64         // bytes that were read of it
	gone  bool          // not all that was read is kept
	err   error         // what ended the body
	ready chan struct{} // closed when the read under way is over; nil when none is
	turn  int64         // the reader that may read
	slow  bool          // the client did not send in time
	ended bool          // Close was called: nothing more is read

	follower *grpcwire.Follower // of its messages, where their models are judged
	denied   *openai.Error      // what a message was refused for
	onDenied func()
}

// NewReplay takes a body.
func NewReplay(body io.Reader) *Replay { return &Replay{src: body} }

// Bound bounds in time what is read from now on; w is the call's writer. The first bytes must come within the bounds, and
// where every is set, as for a body that does not wait for its answer, the same time bounds the wait for each later piece.
func (b *Replay) Bound(w http.ResponseWriter, bounds BodyBounds, every bool) {
	b.rc, b.bounds, b.every = http.NewResponseController(w), bounds, every
}

// Slow reports the refusal of a body that did not come in time; nil when it did.
func (b *Replay) Slow() *openai.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.slow {
		return nil
	}
	return b.bounds.tooSlow(time.Now())
}

// Close ends a read of the body that is under way and waits for it, so that nothing uses the connection after the call. Call
// it when the call is over. It does nothing without Bound, or while nothing is read.
func (b *Replay) Close() {
	b.mu.Lock()
	b.ended = true
	ready := b.ready
	ends := ready != nil && b.rc != nil && b.rc.SetReadDeadline(time.Unix(1, 0)) == nil
	b.mu.Unlock()
	if ends {
		<-ready
		_ = b.rc.SetReadDeadline(time.Time{}) // an error shows at the next read
	}
}

// begin sets the deadline of a read that begins now; false when the call is over. The lock is held.
func (b *Replay) begin() bool {
	if b.ended {
		return false
	}
	if b.rc != nil && (b.every || b.total == 0) {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.bounds.within())) // a writer of a test has none
	}
	return true
}

// done ends what begin began. The lock is held.
func (b *Replay) done(n int, err error) {
	if b.rc == nil || b.ended || !b.every && b.total > 0 {
		return
	}
	b.slow = b.slow || n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	_ = b.rc.SetReadDeadline(time.Time{}) // as in begin
}

// Again reports whether another reader would read everything from the start.
func (b *Replay) Again() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.gone }

// Kept is what was read so far, where that is all kept, in bytes.
func (b *Replay) Kept() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.kept) }

// Total is how much the client has sent so far, in bytes.
func (b *Replay) Total() int64 { b.mu.Lock(); defer b.mu.Unlock(); return b.total }

// Open begins to read from the start. A reader that was opened before reads no more. Close ends a read that waits.
func (b *Replay) Open() io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	return &replayed{b: b, turn: b.turn, closed: make(chan struct{})}
}

// fill reads until n bytes are kept; false when the body ends before. Nobody reads yet but the caller.
func (b *Replay) fill(n int) bool {
	for len(b.kept) < n {
		if b.err != nil {
			return false
		}
		at := len(b.kept)
		b.kept = append(b.kept, make([]byte, max(n-at, 512))...)
		var m int
		m, b.err = b.src.Read(b.kept[at:])
		b.kept = b.kept[:at+m]
		b.total += int64(m)
		if !b.bounds.charge(m) {
			b.err = errBodyMemory
			return false
		}
	}
	return true
}

// pull begins a read, on behalf of a reader that has taken all there is. The lock is held.
func (b *Replay) pull() {
	if b.ready != nil {
		return
	}
	if !b.begin() {
		b.err = errClosed
		return
	}
	ready := make(chan struct{})
	b.ready = ready
	go func() {
		buf := make([]byte, 16<<10)
		n, err := b.src.Read(buf)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done(n, err)
		b.total += int64(n)
		if b.refused(buf[:n]) {
			n, err = 0, errDenied
		}
		room := b.gone || len(b.kept)+n <= maxReplay && b.bounds.charge(n)
		if !room || b.gone && len(b.kept) == 0 {
			b.gone = true
			b.bounds.release()
			b.base += int64(len(b.kept))
			b.kept = buf[:n]
		} else {
			b.kept = append(b.kept, buf[:n]...)
		}
		b.err, b.ready = err, nil
		close(ready)
	}()
}

// Model reads the model out of the first message of a gRPC call, one whose messages name it. as answers with the name
// to put in its place, once it has been resolved.
func (b *Replay) Model() (name string, as func(string), e *openai.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc != nil && b.rc.SetReadDeadline(b.bounds.end(time.Now())) == nil {
		defer func() {
			_ = b.rc.SetReadDeadline(time.Time{}) // an error shows at the next read
			if errors.Is(b.err, errBodyMemory) {
				name, as, e = "", nil, b.bounds.Charge.refuse()
			}
			if errors.Is(b.err, os.ErrDeadlineExceeded) {
				name, as, e, b.slow = "", nil, b.bounds.tooSlow(time.Now()), true
			}
		}()
	}
	if !b.fill(grpcwire.FrameHead) {
		return "", nil, openai.InvalidJSON("the call ended before its first message")
	}
	size, compressed := grpcwire.Frame(b.kept)
	if compressed {
		return "", nil, openai.InvalidJSON("the first message is compressed: name the model in the metadata x-model, or send it uncompressed")
	}
	for step := int64(1 << 10); ; step *= 4 {
		n := min(size, step, maxNaming)
		whole := b.fill(grpcwire.FrameHead + int(n))
		msg := b.kept[grpcwire.FrameHead:]
		name, start, end, ok := grpcwire.Model(msg[:min(int64(len(msg)), size)])
		if ok {
			return name, func(other string) { b.rename(start, end, name, other) }, nil
		}
		if !whole || n == size || n == maxNaming {
			return "", nil, openai.InvalidJSON("the message does not name its model among its first fields: name it in the metadata x-model")
		}
	}
}

// Judge has every message of a call judged by the model that it names, from the first byte on: judge returns what one is
// refused for. The message that is refused is not passed on whole, and the body ends there. Nothing must have been read but
// by Model.
func (b *Replay) Judge(judge func(model string, first bool) *openai.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.follower = &grpcwire.Follower{Judge: judge}
	if b.refused(b.kept) {
		b.err = errDenied
	}
}

// refused reports whether a message ends the body. The lock is held.
func (b *Replay) refused(p []byte) bool {
	if b.follower == nil {
		return false
	}
	if b.denied = b.follower.Feed(p); b.denied == nil {
		return false
	}
	if b.onDenied != nil {
		b.onDenied()
	}
	return true
}

// Denied is what a message was refused for; nil when none was.
func (b *Replay) Denied() *openai.Error { b.mu.Lock(); defer b.mu.Unlock(); return b.denied }

// OnDenied has f called when a message is refused, at once if one was. f must not wait.
func (b *Replay) OnDenied(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onDenied = f; b.denied != nil && f != nil {
		f()
	}
}

// rename puts another model into the message that is kept. Nothing was read of it yet but by us.
func (b *Replay) rename(start, end int, from, to string) {
	if from == to {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = grpcwire.WithModel(b.kept, start, end, to)
}

// replayed is one reader of a Replay.
type replayed struct {
	b      *Replay
	turn   int64
	off    int64
	once   sync.Once
	closed chan struct{}
}

var (
	errReplaced = errors.New("the body is read by another attempt")
	errClosed   = errors.New("the attempt is over")
	errDenied   = errors.New("a message was refused")
)

// Read gives what is kept first.
func (r *replayed) Read(p []byte) (int, error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		select {
		case <-r.closed:
			return 0, errClosed
		default:
		}
		switch {
		case r.turn != b.turn || r.off < b.base:
			return 0, errReplaced
		case r.off < b.base+int64(len(b.kept)):
			n := copy(p, b.kept[r.off-b.base:])
			r.off += int64(n)
			if b.gone && r.off == b.base+int64(len(b.kept)) {
				b.base, b.kept = r.off, nil
			}
			return n, nil
		case b.err != nil:
			return 0, b.err
		}
		b.pull()
		ready := b.ready
		if ready == nil {
			continue // the call is over
		}
		b.mu.Unlock()
		select {
		case <-ready:
		case <-r.closed:
		}
		b.mu.Lock()
	}
}

// Close ends a read that waits. The body itself is its server's to close.
func (r *replayed) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}
