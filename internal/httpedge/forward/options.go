package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// Options are the options of one forward. The zero value forwards without changes.
type Options struct {
	// HideUsage removes the usage from the client's stream: Spillway asked for it, not the client. The observer
	// sees it. A response with a Content-Encoding is not changed.
	HideUsage bool
	// Original is the body as the client sent it, if the sent body asks for usage in addition. An endpoint that
	// refuses that option (400 or 422 naming stream_options) is sent the original at once, and OnUsageRefused
	// is called.
	Original *openai.EditedBody
	// OnUsageRefused is called if the endpoint refused the usage option. It must not be nil if Original is set.
	OnUsageRefused func()
	// Claim is called once before anything is written to the client. False ends the forward: another attempt
	// was faster. Nil means that there is no other attempt.
	Claim func() bool
	// Splicer records a stream that may be resumed; nil: it cannot be. See Interrupted.
	Splicer *resume.Splicer
	// OnDetachedEnd, if set, allows a stream to continue after Forward has returned. The outcome is
	// then Detached, and OnDetachedEnd is called once, on another goroutine, with the final result. The response to
	// the client ends when it returns. Until then the handler must not use the writer or the request, before or
	// after it has returned.
	OnDetachedEnd func(Result)
	// Continuing: this forward continues a stream whose head was written by another forward. Splicer must not
	// be nil. Until a byte has arrived, the result is that of a forward that never began.
	Continuing bool
	// Sent is the request as a request loop has sent it: only its answer is read. Nil: it is not sent yet.
	Sent *http1.SentRequest
	// Progress observes the request until its final response; nil: none.
	Progress ProgressObserver
}

// ErrLostRace is the cause with which a caller cancels the context of Forward because another attempt has
// responded to the client.
var ErrLostRace = errors.New("another attempt was faster")

// maxRefusalScan is how much of a refusal is searched for its reason, in bytes.
const maxRefusalScan = 16 << 10

// sendRequest sends a request. It sends it again without our additions if the endpoint refused them: the client
// is not at fault and no work was done.
func (f *Forwarder) sendRequest(ctx context.Context, req *http.Request, opts *Options) (*http.Response, error) {
	if req.Context() != ctx {
		req = req.WithContext(ctx)
	}
	var resp *http.Response
	var err error
	if opts.Sent != nil {
		resp, err = roundTripSent(f.Transport, req, opts.Sent)
	} else {
		resp, err = http1.RoundTripObserved(f.Transport, req, opts.Progress)
	}
	if err != nil || opts.Original == nil || !refusesUsage(resp) {
		return resp, err
	}
	_ = resp.Body.Close() // it was read, or is longer than an error message needs
	opts.OnUsageRefused()
	again := req.Clone(ctx)
	setRequestBody(again, opts.Original)
	return http1.RoundTripObserved(f.Transport, again, opts.Progress)
}

// refusesUsage reports whether a response rejects stream_options. It restores the part of the body that it
// reads.
func refusesUsage(resp *http.Response) bool {
	if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalScan))
	rest := resp.Body
	var tail io.Reader = rest
	if err != nil {
		tail = errorReader{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), tail), rest}
	return bytes.Contains(text, []byte("stream_options")) || bytes.Contains(text, []byte("include_usage"))
}

// errorReader ends a body that broke off.
type errorReader struct{ err error }

func (f errorReader) Read([]byte) (int, error) { return 0, f.err }
