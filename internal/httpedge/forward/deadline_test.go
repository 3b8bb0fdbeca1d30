package forward_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// failingTransport is an endpoint that breaks an attempt off after a while, before or after its head.
type failingTransport struct {
	after     time.Duration
	afterHead bool
}

var errReset = errors.New("stream reset")

func (p failingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.afterHead {
		h := http.Header{"Content-Type": {"application/grpc"}}
		return &http.Response{StatusCode: 200, ProtoMajor: 2, Header: h, Body: io.NopCloser(failingBody{p, req.Context()})}, nil
	}
	return nil, p.waitAndFail(req.Context())
}

func (p failingTransport) waitAndFail(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.after):
		return errReset
	}
}

type failingBody struct {
	transport failingTransport
	ctx       context.Context
}

func (b failingBody) Read([]byte) (int, error) { return 0, b.transport.waitAndFail(b.ctx) }

// A failure at the client's own deadline, or caused by the client's body, is not attributed to the endpoint. A
// failure long before the deadline is.
func TestClientDeadlineOrAbortBlamesNoEndpoint(t *testing.T) {
	const deadline = time.Second
	for name, tc := range map[string]struct {
		after      time.Duration // when the endpoint fails
		body       time.Duration // when the client's body breaks off; 0: never
		late, gone bool
	}{
		"long before":                 {after: deadline / 2},
		"a rounding before":           {after: deadline - 2*time.Millisecond, late: true},
		"at the same moment":          {after: deadline, late: true},
		"never":                       {after: time.Hour, late: true},
		"the body just before":        {after: deadline / 2, body: deadline/2 - time.Millisecond, gone: true},
		"the body, and then the time": {after: deadline, body: deadline / 2, late: true},
	} {
		for _, begun := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(deadline), forward.ErrClientDeadline)
					defer cancel()
					in, out := io.Pipe()
					defer out.Close()
					if tc.body > 0 {
						time.AfterFunc(tc.body, func() { _ = out.CloseWithError(errors.New("unexpected EOF")) })
					}
					body := forward.NewReplayBody(in)
					r := httptest.NewRequest(http.MethodPost, "/any.Service/Chat", in)
					req, err := forward.NewStreamingRequest(ctx, r, "http://place/", forward.GRPC, body.OpenReader(), nil)
					if err != nil {
						t.Fatal(err)
					}
					go func() { _, _ = io.Copy(io.Discard, req.Body) }() // as a transport does
					f := forward.Forwarder{Transport: failingTransport{tc.after, begun}}
					res := f.ForwardStreaming(ctx, httptest.NewRecorder(), req, forward.GRPC, nil)
					if (res.Outcome == forward.DeadlinePassed) != tc.late || res.Outcome.IsClientGone() != tc.gone || res.Outcome.MayRetry() != (!begun && !tc.late && !tc.gone) || res.Err == nil {
						t.Errorf("begun %v: %+v", begun, res)
					}
				})
			})
		}
	}
}

// An endpoint receives the head of a call and dies while the client sends nothing. The call must end without
// waiting for the client.
func TestEndpointDeathEndsCallOfSilentClient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_ = c.Close()
		}
	})
	defer served.Wait()
	defer l.Close()
	in, out := io.Pipe()
	defer out.Close()
	tr := forward.NewTransport(nil)
	forward.CloseBodiesOnConnEnd(tr)
	defer tr.CloseIdleConnections()
	body := forward.NewReplayBody(in)
	r := httptest.NewRequest(http.MethodPost, "/any.Service/Chat", in)
	for _, kind := range []forward.Kind{forward.GRPC, forward.Buffered} {
		req, err := forward.NewStreamingRequest(context.Background(), r, "http://"+l.Addr().String(), kind, body.OpenReader(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := forward.Forwarder{Transport: tr}
		if res := f.ForwardStreaming(context.Background(), httptest.NewRecorder(), req, kind, nil); !res.Outcome.MayRetry() {
			t.Errorf("%+v", res)
		}
		if !body.CanReplay() {
			t.Error("the call cannot be tried elsewhere")
		}
	}
}
