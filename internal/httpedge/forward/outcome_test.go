package forward_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// outcomeRun is one forward to a scripted endpoint.
type outcomeRun struct {
	t      *testing.T
	ctx    context.Context
	cancel context.CancelCauseFunc
	client http.ResponseWriter
	body   *forward.ReplayBody // of a request that streams
	upload *io.PipeWriter      // its other end
	splice *resume.Splicer     // nil: the stream cannot be resumed
}

func newOutcomeRun(t *testing.T) *outcomeRun {
	r := &outcomeRun{t: t, client: httptest.NewRecorder()}
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	in, out := io.Pipe()
	r.body, r.upload = forward.NewReplayBody(in), out
	t.Cleanup(func() { r.cancel(nil); _ = out.Close(); r.body.Close() })
	return r
}

// forwardBuffered forwards a request that was read completely.
func (r *outcomeRun) forwardBuffered(send transportFunc, opts forward.Options) forward.Result {
	opts.Splicer = r.splice
	f := forward.Forwarder{Transport: send, ReturnOverloads: true}
	return f.ForwardWith(r.ctx, r.client, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil), nil, opts)
}

// forwardStreaming forwards a request while its body arrives.
func (r *outcomeRun) forwardStreaming(send transportFunc, kind forward.Kind) forward.Result {
	in := httptest.NewRequest(http.MethodPost, "/any.Service/Chat", nil)
	req, err := forward.NewStreamingRequest(r.ctx, in, "http://endpoint/", kind, r.body.OpenReader(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	f := forward.Forwarder{Transport: send}
	return f.ForwardStreaming(r.ctx, r.client, req, kind, nil)
}

// forwardTunnel requests a WebSocket.
func (r *outcomeRun) forwardTunnel(send transportFunc) forward.Result {
	f := forward.Forwarder{Transport: send}
	return f.ForwardTunnel(r.ctx, r.client, httptest.NewRequest(http.MethodGet, "/v1/realtime", nil), nil, forward.TunnelLimits{IdleTimeout: time.Minute, MaxLifetime: time.Minute})
}

// answerWith returns a transport that responds with a status, headers (pairs) and the pieces of a body.
func answerWith(status int, header []string, pieces ...bodyPiece) transportFunc {
	return func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: status, ProtoMajor: 1, Header: http.Header{}, Body: &scriptedBody{req.Context(), pieces}, ContentLength: -1, Request: req}
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp, nil
	}
}

// bodyPiece is a text, or the error of a read.
type bodyPiece func(ctx context.Context) (string, error)

// scriptedBody returns its pieces in order, and then io.EOF.
type scriptedBody struct {
	ctx    context.Context
	pieces []bodyPiece
}

func (b *scriptedBody) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, io.EOF
	}
	text, err := b.pieces[0](b.ctx)
	b.pieces = b.pieces[1:]
	return copy(p, text), err
}

func (b *scriptedBody) Close() error { return nil }

func sendText(s string) bodyPiece { return func(context.Context) (string, error) { return s, nil } }

func breakWith(err error) bodyPiece { return func(context.Context) (string, error) { return "", err } }

// endContext ends the context of a run, and returns when the one derived from it has ended.
func (r *outcomeRun) endContext(derived context.Context, cause error) {
	r.cancel(cause)
	<-derived.Done()
}

// endWith ends the context of a run and fails.
func (r *outcomeRun) endWith(cause error) bodyPiece {
	return func(ctx context.Context) (string, error) {
		r.endContext(ctx, cause)
		return "", ctx.Err()
	}
}

// failAfter returns a transport that ends the context and fails.
func (r *outcomeRun) failAfter(cause error) transportFunc {
	return r.afterEnd(cause, func(*http.Request) (*http.Response, error) { return nil, context.Canceled })
}

// afterEnd is next once the context has ended.
func (r *outcomeRun) afterEnd(cause error, next transportFunc) transportFunc {
	return func(req *http.Request) (*http.Response, error) {
		r.endContext(req.Context(), cause)
		return next(req)
	}
}

// breakUpload breaks the body of the client, as its reader observes.
func (r *outcomeRun) breakUpload(req *http.Request) {
	_ = r.upload.CloseWithError(errors.New("the body broke off"))
	_, _ = io.Copy(io.Discard, req.Body)
}

// afterBrokenUpload is next once the body of the client has broken off.
func (r *outcomeRun) afterBrokenUpload(next transportFunc) transportFunc {
	return func(req *http.Request) (*http.Response, error) { r.breakUpload(req); return next(req) }
}

// sendRefusedMessage sends a message whose model is refused.
func (r *outcomeRun) sendRefusedMessage(req *http.Request) {
	r.body.CheckMessages(func(model string, _ bool) *openai.Error { return openai.ModelNotAllowed(model) })
	go func() { _, _ = r.upload.Write([]byte("\x00\x00\x00\x00\x07\x0a\x05other")) }()
	_, _ = io.Copy(io.Discard, req.Body)
}

// failingClient is a client that stops reading.
type failingClient struct{ http.ResponseWriter }

func (failingClient) Write([]byte) (int, error) { return 0, net.ErrClosed }

// tunnelClient is a client whose connection can be taken over.
type tunnelClient struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (c tunnelClient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return c.conn, bufio.NewReadWriter(bufio.NewReader(c.conn), bufio.NewWriter(c.conn)), nil
}

// joinTunnel accepts an upgrade; byClient tells which end closes the tunnel.
func (r *outcomeRun) joinTunnel(byClient bool) forward.Result {
	client, clientEnd := net.Pipe()
	worker, workerEnd := net.Pipe()
	r.client = tunnelClient{httptest.NewRecorder(), client}
	go func() {
		_, _ = http.ReadResponse(bufio.NewReader(clientEnd), nil)
		if byClient {
			_ = clientEnd.Close()
		} else {
			_ = workerEnd.Close()
		}
	}()
	return r.forwardTunnel(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"websocket"}}, Body: worker, Request: req}, nil
	})
}

// spliceStream makes the stream of a run resumable.
func (r *outcomeRun) spliceStream() *outcomeRun {
	body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	q, why := resume.ExamineRequest(body, openai.PathChat, false)
	if why != resume.Resumable {
		r.t.Fatal(why)
	}
	r.splice = resume.NewSplicer(q, body, 4, resume.SpliceLimits{MaxTextBytes: 1 << 16})
	return r
}

var (
	errConnReset = errors.New("connection reset")

	eventStream = []string{"Content-Type", "text/event-stream"}
	grpcAnswer  = []string{"Content-Type", "application/grpc"}
	jsonAnswer  = []string{"Content-Type", "application/json"}
	notStarted  = []string{forward.HeaderNotStarted, "1"}
)

const (
	chatEvent  = "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
	errorEvent = "data: {\"error\":{\"message\":\"the engine failed\",\"type\":\"internal_error\",\"code\":500}}\n\n"
)

// The former booleans of a result, which the outcome and its two facts replace. brokenUnseen is truncated of a
// response that is not an event stream.
const (
	started = 1 << iota
	notStartedFlag
	retryable
	clientGone
	deadlinePassed
	lostRace
	truncated
	brokenUnseen
	interrupted
)

// formerBooleans derives the former booleans.
func formerBooleans(r forward.Result) (flags int) {
	for flag, on := range map[int]bool{
		started: r.ReachedClient, notStartedFlag: r.NoWorkBegun, retryable: r.Outcome.MayRetry(), clientGone: r.Outcome.IsClientGone(),
		deadlinePassed: r.Outcome == forward.DeadlinePassed, lostRace: r.Outcome == forward.LostRace, truncated: r.IsTruncated(),
		brokenUnseen: r.Outcome == forward.BrokenOff, interrupted: r.Outcome == forward.Interrupted,
	} {
		if on {
			flags |= flag
		}
	}
	return flags
}

// TestOutcomesReplaceTheirFormerBooleans: every way in which a forward ends has one outcome, from which, with
// the two facts, each of the booleans that Result had before can be derived. The flags were recorded with those
// booleans. Detached is not among them: only the server of http1 detaches streams.
func TestOutcomesReplaceTheirFormerBooleans(t *testing.T) {
	reached := map[forward.Outcome]bool{forward.Detached: true}
	outcomeOf := map[int]forward.Outcome{}
	for _, c := range outcomeCases {
		t.Run(c.name, func(t *testing.T) {
			res := c.run(newOutcomeRun(t))
			if got := formerBooleans(res); got != c.flags || res.Outcome != c.outcome {
				t.Errorf("%s, flags %09b; want %s, %09b: %+v", res.Outcome, got, c.outcome, c.flags, res)
			}
			withErr := c.outcome != forward.Completed && res.TunnelEnd == ""
			if (res.Err != nil) != withErr {
				t.Errorf("error %v", res.Err)
			}
			if refused := c.outcome == forward.Refused || c.outcome == forward.Unsupported; refused && res.Refusal == nil {
				t.Error("there is no refusal")
			}
			if before, ok := outcomeOf[c.flags]; ok && before != c.outcome && !sharesFlags[c.outcome] {
				t.Errorf("%s and %s have the same flags", before, c.outcome)
			}
			if !sharesFlags[c.outcome] {
				outcomeOf[c.flags] = c.outcome
			}
			reached[c.outcome] = true
		})
	}
	for o := forward.NotForwarded; o <= forward.Detached; o++ {
		if !reached[o] {
			t.Errorf("no case ends with %s", o)
		}
	}
}

// sharesFlags are the outcomes that the former booleans did not tell apart without Refusal or Err.
var sharesFlags = map[forward.Outcome]bool{forward.NotForwarded: true, forward.Unsupported: true, forward.Unanswered: true, forward.Refused: true, forward.NotContinued: true}

var outcomeCases = []struct {
	name    string
	run     func(r *outcomeRun) forward.Result
	flags   int
	outcome forward.Outcome
}{
	{"an answer", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, jsonAnswer, sendText("{}")), forward.Options{})
	}, started, forward.Completed},
	{"a stream", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, sendText(chatEvent)), forward.Options{})
	}, started, forward.Completed},
	{"an error answer", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(500, jsonAnswer, sendText("{}")), forward.Options{})
	}, started, forward.Completed},
	{"lost race before the response", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(r.failAfter(forward.ErrLostRace), forward.Options{})
	}, lostRace, forward.LostRace},
	{"lost race before the first byte", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, r.endWith(forward.ErrLostRace)), forward.Options{})
	}, lostRace, forward.LostRace},
	{"lost race at the first byte", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, sendText(chatEvent)), forward.Options{Claim: func() bool { return false }})
	}, lostRace, forward.LostRace},
	{"no response", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(func(*http.Request) (*http.Response, error) { return nil, errConnReset }, forward.Options{})
	}, retryable, forward.Unanswered},
	{"given up before the response", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(r.failAfter(forward.ErrGivenUp), forward.Options{})
	}, retryable, forward.Unanswered},
	{"an invalid status", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(101, nil), forward.Options{})
	}, retryable, forward.Unanswered},
	{"broken before the first byte", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, breakWith(errConnReset)), forward.Options{})
	}, retryable, forward.Unanswered},
	{"client gone before the response", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(r.failAfter(nil), forward.Options{})
	}, clientGone, forward.ClientGone},
	{"client gone before the first byte", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, jsonAnswer, r.endWith(nil)), forward.Options{})
	}, clientGone, forward.ClientGone},
	{"no work begun", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(503, notStarted), forward.Options{})
	}, notStartedFlag | retryable, forward.Refused},
	{"overloaded", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(429, jsonAnswer), forward.Options{})
	}, retryable, forward.Refused},
	{"not continued", func(r *outcomeRun) forward.Result {
		return r.spliceStream().forwardBuffered(answerWith(404, jsonAnswer), forward.Options{Continuing: true})
	}, retryable, forward.NotContinued},
	{"continuation broken before the first byte", func(r *outcomeRun) forward.Result {
		return r.spliceStream().forwardBuffered(answerWith(200, eventStream, breakWith(errConnReset)), forward.Options{Continuing: true})
	}, retryable, forward.Unanswered},
	{"client stopped reading", func(r *outcomeRun) forward.Result {
		r.client = failingClient{httptest.NewRecorder()}
		return r.forwardBuffered(answerWith(200, jsonAnswer, sendText("{}")), forward.Options{})
	}, started | clientGone, forward.ClientGone},
	{"client gone in a stream", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, sendText(chatEvent), r.endWith(nil)), forward.Options{})
	}, started | clientGone, forward.ClientGone},
	{"answer broken off", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, jsonAnswer, sendText("{"), breakWith(errConnReset)), forward.Options{})
	}, started | truncated | brokenUnseen, forward.BrokenOff},
	{"stream broken", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, sendText(chatEvent), breakWith(errConnReset)), forward.Options{})
	}, started | truncated, forward.StreamBroken},
	{"stream given up", func(r *outcomeRun) forward.Result {
		return r.forwardBuffered(answerWith(200, eventStream, sendText(chatEvent), r.endWith(forward.ErrGivenUp)), forward.Options{})
	}, started | truncated, forward.StreamBroken},
	{"resumable stream broken", func(r *outcomeRun) forward.Result {
		return r.spliceStream().forwardBuffered(answerWith(200, eventStream, sendText(chatEvent), breakWith(errConnReset)), forward.Options{})
	}, started | truncated | interrupted, forward.Interrupted},
	{"resumable stream ended by the engine", func(r *outcomeRun) forward.Result {
		return r.spliceStream().forwardBuffered(answerWith(200, eventStream, sendText(chatEvent), sendText(errorEvent)), forward.Options{})
	}, started | truncated | interrupted, forward.Interrupted},

	{"a call", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, grpcAnswer, sendText("x")), forward.GRPC)
	}, started, forward.Completed},
	{"a call without a response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(func(*http.Request) (*http.Response, error) { return nil, errConnReset }, forward.GRPC)
	}, retryable, forward.Unanswered},
	{"a call without work", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(503, notStarted), forward.GRPC)
	}, notStartedFlag | retryable, forward.Refused},
	{"a call answered with JSON", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, jsonAnswer, sendText("{}")), forward.GRPC)
	}, 0, forward.Unsupported},
	{"client of a call stopped reading", func(r *outcomeRun) forward.Result {
		r.client = failingClient{httptest.NewRecorder()}
		return r.forwardStreaming(answerWith(200, grpcAnswer, sendText("x")), forward.GRPC)
	}, started | clientGone, forward.ClientGone},
	{"client of a call gone in the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, grpcAnswer, sendText("x"), r.endWith(nil)), forward.GRPC)
	}, started | clientGone, forward.ClientGone},
	{"call broken", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, grpcAnswer, sendText("x"), breakWith(errConnReset)), forward.GRPC)
	}, started | truncated, forward.StreamBroken},
	{"streamed answer broken off", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, jsonAnswer, sendText("{"), breakWith(errConnReset)), forward.Buffered)
	}, started | truncated | brokenUnseen, forward.BrokenOff},

	{"deadline before the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.failAfter(forward.ErrClientDeadline), forward.GRPC)
	}, deadlinePassed, forward.DeadlinePassed},
	{"deadline in the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(answerWith(200, grpcAnswer, sendText("x"), r.endWith(forward.ErrClientDeadline)), forward.GRPC)
	}, started | deadlinePassed | truncated, forward.DeadlinePassed},
	{"deadline and no work", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterEnd(forward.ErrClientDeadline, answerWith(503, notStarted)), forward.GRPC)
	}, notStartedFlag | deadlinePassed, forward.DeadlinePassed},
	{"deadline and an answer of another kind", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterEnd(forward.ErrClientDeadline, answerWith(200, jsonAnswer)), forward.GRPC)
	}, deadlinePassed, forward.DeadlinePassed},

	{"upload broken before the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterBrokenUpload(func(*http.Request) (*http.Response, error) { return nil, errConnReset }), forward.GRPC)
	}, clientGone, forward.ClientGone},
	{"upload broken and no work", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterBrokenUpload(answerWith(503, notStarted)), forward.GRPC)
	}, notStartedFlag | clientGone, forward.ClientGone},
	{"upload broken and an answer of another kind", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterBrokenUpload(answerWith(200, jsonAnswer)), forward.GRPC)
	}, clientGone, forward.ClientGone},
	{"upload broken in the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(r.afterBrokenUpload(answerWith(200, grpcAnswer, sendText("x"), breakWith(errConnReset))), forward.GRPC)
	}, started | clientGone | truncated, forward.RequestBroken},
	{"message refused before the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(func(req *http.Request) (*http.Response, error) {
			r.sendRefusedMessage(req)
			return nil, context.Canceled
		}, forward.GRPC)
	}, clientGone, forward.ClientGone},
	{"message refused in the response", func(r *outcomeRun) forward.Result {
		return r.forwardStreaming(func(req *http.Request) (*http.Response, error) {
			refuse := func(context.Context) (string, error) { r.sendRefusedMessage(req); return "", context.Canceled }
			return answerWith(200, grpcAnswer, sendText("x"), refuse)(req)
		}, forward.GRPC)
	}, started | clientGone, forward.ClientGone},

	{"upgrade refused", func(r *outcomeRun) forward.Result {
		return r.forwardTunnel(answerWith(403, jsonAnswer))
	}, 0, forward.Unsupported},
	{"upgrade refused without work", func(r *outcomeRun) forward.Result {
		return r.forwardTunnel(answerWith(503, notStarted))
	}, notStartedFlag | retryable, forward.Refused},
	{"another upgrade", func(r *outcomeRun) forward.Result {
		return r.forwardTunnel(answerWith(101, []string{"Upgrade", "h2c"}))
	}, retryable, forward.Unanswered},
	{"connection that cannot be taken over", func(r *outcomeRun) forward.Result {
		worker, _ := net.Pipe()
		return r.forwardTunnel(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"websocket"}}, Body: worker, Request: req}, nil
		})
	}, 0, forward.NotForwarded},
	{"client of an upgrade gone", func(r *outcomeRun) forward.Result { return r.forwardTunnel(r.failAfter(nil)) }, clientGone, forward.ClientGone},
	{"tunnel closed by the client", func(r *outcomeRun) forward.Result { return r.joinTunnel(true) }, started | clientGone, forward.ClientGone},
	{"tunnel closed by the worker", func(r *outcomeRun) forward.Result { return r.joinTunnel(false) }, started, forward.Completed},
	{"no request", func(*outcomeRun) forward.Result { return forward.Result{Err: errors.New("no request")} }, 0, forward.NotForwarded},
}
