package forward

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

// maxReplayBytes bounds how much of a streamed body is kept for a second attempt, in bytes.
const maxReplayBytes = 128 << 10

// maxModelOffset bounds the offset of the model in a message, in bytes.
const maxModelOffset = 64 << 10

// ReplayBody is the body of a streaming request. Its beginning is kept, so that the request can be tried
// elsewhere while no more than that was read. A read that waits for the client can be abandoned; bytes that
// arrive later are kept too.
type ReplayBody struct {
	source         io.Reader
	controller     *http.ResponseController // sets the read deadlines; nil: no deadlines
	limits         BodyLimits
	boundEveryRead bool // each read is bounded, not only the first

	mu           sync.Mutex
	buffered     []byte // from offset base on
	bufferedFrom int64
	bytesRead    int64         // bytes read from source
	discarded    bool          // some bytes that were read are no longer kept
	err          error         // the error that ended the body
	readDone     chan struct{} // closed when the current read ends; nil if there is none
	readerTurn   int64         // the number of the reader that may read
	timedOut     bool          // the client did not send in time
	closed       bool          // Close was called: no further reads

	modelReader *grpcmeta.MessageModelReader // of its messages, if their models are checked
	refusal     *openai.Error                // the error of a refused message
	onRefusal   func()
}

// NewReplayBody creates a ReplayBody that reads from body.
func NewReplayBody(body io.Reader) *ReplayBody { return &ReplayBody{source: body} }

// SetLimits bounds the duration of reads from now on; w is the writer of the call. The first bytes must arrive
// within the limits. If every is set, as for a body that does not wait for its response, the same timeout
// applies to each later read.
func (b *ReplayBody) SetLimits(w http.ResponseWriter, bounds BodyLimits, every bool) {
	b.controller, b.limits, b.boundEveryRead = http.NewResponseController(w), bounds, every
}

// SlowError returns the refusal of a body that did not arrive in time, or nil.
func (b *ReplayBody) SlowError() *openai.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.timedOut {
		return nil
	}
	return b.limits.slowBodyError(time.Now())
}

// Close ends a read in progress and waits for it, so that nothing uses the connection afterwards. It must be
// called when the call is over. It has no effect without SetLimits or if no read is in progress.
func (b *ReplayBody) Close() {
	b.mu.Lock()
	b.closed = true
	ready := b.readDone
	ends := ready != nil && b.controller != nil && b.controller.SetReadDeadline(time.Unix(1, 0)) == nil
	b.mu.Unlock()
	if ends {
		<-ready
		_ = b.controller.SetReadDeadline(time.Time{}) // the next read returns the error
	}
}

// beginRead sets the deadline of a read that begins now. It returns false if the call is over. The lock must be
// held.
func (b *ReplayBody) beginRead() bool {
	if b.closed {
		return false
	}
	if b.controller != nil && (b.boundEveryRead || b.bytesRead == 0) {
		_ = b.controller.SetReadDeadline(time.Now().Add(b.limits.timeoutOrDefault())) // a test writer has none
	}
	return true
}

// endRead ends what beginRead began. The lock must be held.
func (b *ReplayBody) endRead(n int, err error) {
	if b.controller == nil || b.closed || !b.boundEveryRead && b.bytesRead > 0 {
		return
	}
	b.timedOut = b.timedOut || n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	_ = b.controller.SetReadDeadline(time.Time{}) // as in beginRead
}

// CanReplay reports whether another reader can read the body from its start.
func (b *ReplayBody) CanReplay() bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.discarded }

// BufferedBytes returns the number of bytes read so far if all are kept.
func (b *ReplayBody) BufferedBytes() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.buffered) }

// BytesRead returns the number of bytes that the client has sent so far.
func (b *ReplayBody) BytesRead() int64 { b.mu.Lock(); defer b.mu.Unlock(); return b.bytesRead }

// OpenReader opens a reader from the start. Readers opened before return no more data. Close ends a blocked
// read.
func (b *ReplayBody) OpenReader() io.ReadCloser { return b.OpenObserved(nil) }

// OpenObserved is OpenReader with sent called once the first message of a gRPC call was read completely and the
// reader asks for more: the message is sent by then. sent must not block; nil: no call.
func (b *ReplayBody) OpenObserved(sent func()) io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readerTurn++
	return &replayReader{body: b, turn: b.readerTurn, onFirstSent: sent, closed: make(chan struct{})}
}

// bufferAtLeast reads until n bytes are kept. It returns false if the body ends before. There must be no other
// reader yet.
func (b *ReplayBody) bufferAtLeast(n int) bool {
	for len(b.buffered) < n {
		if b.err != nil {
			return false
		}
		at := len(b.buffered)
		b.buffered = append(b.buffered, make([]byte, max(n-at, 512))...)
		var m int
		m, b.err = b.source.Read(b.buffered[at:])
		b.buffered = b.buffered[:at+m]
		b.bytesRead += int64(m)
		if !b.limits.chargeBytes(m) {
			b.err = errBodyMemoryFull
			return false
		}
	}
	return true
}

// startRead starts a read for a reader that has consumed all kept bytes. The lock must be held.
func (b *ReplayBody) startRead() {
	if b.readDone != nil {
		return
	}
	if !b.beginRead() {
		b.err = errAttemptOver
		return
	}
	ready := make(chan struct{})
	b.readDone = ready
	go func() {
		buf := make([]byte, 16<<10)
		n, err := b.source.Read(buf)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.endRead(n, err)
		b.bytesRead += int64(n)
		if b.checkRefused(buf[:n]) {
			n, err = 0, errMessageRefused
		}
		room := b.discarded || len(b.buffered)+n <= maxReplayBytes && b.limits.chargeBytes(n)
		if !room || b.discarded && len(b.buffered) == 0 {
			b.discarded = true
			b.limits.releaseCharge()
			b.bufferedFrom += int64(len(b.buffered))
			b.buffered = buf[:n]
		} else {
			b.buffered = append(b.buffered, buf[:n]...)
		}
		b.err, b.readDone = err, nil
		close(ready)
	}()
}

// ReadModel reads the model from the first message of a gRPC call whose messages name it. as replaces the name
// after it was resolved.
func (b *ReplayBody) ReadModel() (name string, as func(string), e *openai.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.controller != nil && b.controller.SetReadDeadline(b.limits.readDeadline(time.Now())) == nil {
		defer func() {
			_ = b.controller.SetReadDeadline(time.Time{}) // the next read returns the error
			if errors.Is(b.err, errBodyMemoryFull) {
				name, as, e = "", nil, b.limits.Charge.refuseBody()
			}
			if errors.Is(b.err, os.ErrDeadlineExceeded) {
				name, as, e, b.timedOut = "", nil, b.limits.slowBodyError(time.Now()), true
			}
		}()
	}
	if !b.bufferAtLeast(grpcmeta.FrameHeaderBytes) {
		return "", nil, openai.InvalidJSON("the call ended before its first message")
	}
	size, compressed := grpcmeta.ParseFrameHeader(b.buffered)
	if compressed {
		return "", nil, openai.InvalidJSON("the first message is compressed: name the model in the metadata x-model, or send it uncompressed")
	}
	for step := int64(1 << 10); ; step *= 4 {
		n := min(size, step, maxModelOffset)
		whole := b.bufferAtLeast(grpcmeta.FrameHeaderBytes + int(n))
		msg := b.buffered[grpcmeta.FrameHeaderBytes:]
		name, start, end, ok := grpcmeta.FindModel(msg[:min(int64(len(msg)), size)])
		if ok {
			return name, func(other string) { b.replaceModel(start, end, name, other) }, nil
		}
		if !whole || n == size || n == maxModelOffset {
			return "", nil, openai.InvalidJSON("the message does not name its model among its first fields: name it in the metadata x-model")
		}
	}
}

// CheckMessages checks the model of every message of a call, from the first byte on: judge returns the error if
// a message is refused. A refused message is not forwarded completely, and the body ends there. Only ReadModel
// may have read from the body before.
func (b *ReplayBody) CheckMessages(judge func(model string, first bool) *openai.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.modelReader = &grpcmeta.MessageModelReader{CheckModel: judge}
	if b.checkRefused(b.buffered) {
		b.err = errMessageRefused
	}
}

// checkRefused reports whether a refused message ends the body. The lock must be held.
func (b *ReplayBody) checkRefused(p []byte) bool {
	if b.modelReader == nil {
		return false
	}
	if b.refusal = b.modelReader.FeedBytes(p); b.refusal == nil {
		return false
	}
	if b.onRefusal != nil {
		b.onRefusal()
	}
	return true
}

// MessageRefusal returns the error of a refused message, or nil.
func (b *ReplayBody) MessageRefusal() *openai.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal
}

// OnMessageRefused calls f when a message is refused, at once if one already was. f must not block.
func (b *ReplayBody) OnMessageRefused(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onRefusal = f; b.refusal != nil && f != nil {
		f()
	}
}

// replaceModel replaces the model in the kept message. No reader may have read from it.
func (b *ReplayBody) replaceModel(start, end int, from, to string) {
	if from == to {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffered = grpcmeta.ReplaceModel(b.buffered, start, end, to)
}

// replayReader is one reader of a ReplayBody.
type replayReader struct {
	body            *ReplayBody
	turn            int64
	offset          int64
	firstMessageEnd int64  // offset of the end of the first message; 0 while unknown
	onFirstSent     func() // called when that was sent; nil if not set or already called
	once            sync.Once
	closed          chan struct{}
}

var (
	errReaderReplaced = errors.New("the body is read by another attempt")
	errAttemptOver    = errors.New("the attempt is over")
	errMessageRefused = errors.New("a message was refused")
)

// Read returns the kept bytes first.
func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.onFirstSent != nil && r.firstMessageEnd > 0 && r.offset >= r.firstMessageEnd && r.turn == b.readerTurn {
		r.onFirstSent()
		r.onFirstSent = nil
	}
	for {
		select {
		case <-r.closed:
			return 0, errAttemptOver
		default:
		}
		switch {
		case r.turn != b.readerTurn || r.offset < b.bufferedFrom:
			return 0, errReaderReplaced
		case r.offset < b.bufferedFrom+int64(len(b.buffered)):
			if r.firstMessageEnd == 0 && b.bufferedFrom == 0 && len(b.buffered) >= grpcmeta.FrameHeaderBytes {
				size, _ := grpcmeta.ParseFrameHeader(b.buffered)
				r.firstMessageEnd = grpcmeta.FrameHeaderBytes + size
			}
			n := copy(p, b.buffered[r.offset-b.bufferedFrom:])
			r.offset += int64(n)
			if b.discarded && r.offset == b.bufferedFrom+int64(len(b.buffered)) {
				b.bufferedFrom, b.buffered = r.offset, nil
			}
			return n, nil
		case b.err != nil:
			return 0, b.err
		}
		b.startRead()
		ready := b.readDone
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

// Close ends a blocked read. The server closes the body itself.
func (r *replayReader) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}
