package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/wire"
)

// Options are what is peculiar to one forward. The zero value forwards plainly.
type Options struct {
	// HideUsage takes the usage out of the client's stream: it was asked for by us, not by the client. The observer sees
	// it. An answer with a Content-Encoding is left alone.
	HideUsage bool
	// Original is the body as the client sent it, where the request's own body asks for usage in addition. A place that
	// refuses the question (400 or 422, naming stream_options) is sent the original at once, and Refused is called.
	Original *openai.Wording
	// Refused is called when the place refused the question for usage. It must not be nil where Original is set.
	Refused func()
	// Claim is asked once, before anything is written to the client: false ends the forward as outrun by another. Nil
	// means that there is no other.
	Claim func() bool
	// Seam follows a stream that may be resumed; nil: it will not be. See Result.Cut.
	Seam *resume.Seam
	// Later, where it is set, lets a stream go on after Forward has returned: Result.Followed says so, and Later is told once,
	// on another goroutine, how it went. The client's answer ends when Later returns. Until then the handler has to leave
	// the writer and the request alone, once it has returned as well as before.
	Later func(Result)
	// Joined: this forward goes on with a stream whose head was written by another. Seam must not be nil. Until a byte of it
	// has come, the Result is as that of a forward that never began.
	Joined bool
	// Progress observes the request until its final answer; nil: nothing does.
	Progress Progress
}

// ErrOutrun is the cause with which a caller cancels Forward's context when another attempt has answered the client.
var ErrOutrun = errors.New("another attempt was faster")

// outrun records that another attempt answers the client.
func (r *Result) outrun() {
	r.Outrun, r.Err = true, ErrOutrun
}

// maxComplaint is how much of a refusal is looked at for its reason, in bytes.
const maxComplaint = 16 << 10

// send sends a request, twice when it was refused for what we added to it: that is not the client's fault and cost no work.
func (f *Forwarder) send(ctx context.Context, req *http.Request, opts *Options) (*http.Response, error) {
	if req.Context() != ctx {
		req = req.WithContext(ctx)
	}
	resp, err := wire.RoundTrip(f.Transport, req, opts.Progress)
	if err != nil || opts.Original == nil || !refusesUsage(resp) {
		return resp, err
	}
	_ = resp.Body.Close() // it was read, or is longer than a complaint needs to be
	opts.Refused()
	again := req.Clone(ctx)
	carry(again, opts.Original)
	return wire.RoundTrip(f.Transport, again, opts.Progress)
}

// refusesUsage reports whether an answer complains of stream_options. What it reads of the body is put back.
func refusesUsage(resp *http.Response) bool {
	if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxComplaint))
	rest := resp.Body
	var tail io.Reader = rest
	if err != nil {
		tail = failed{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), tail), rest}
	return bytes.Contains(text, []byte("stream_options")) || bytes.Contains(text, []byte("include_usage"))
}

// failed is the end of a body that broke off.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
