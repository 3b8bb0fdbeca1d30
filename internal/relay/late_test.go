package relay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
)

// failing is a place that breaks an attempt off after a while, before its head or after it.
type failing struct {
	after time.Duration
	begun bool
}

var errReset = errors.New("stream reset")

func (p failing) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.begun {
		h := http.Header{"Content-Type": {"application/grpc"}}
		return &http.Response{StatusCode: 200, ProtoMajor: 2, Header: h, Body: io.NopCloser(failingBody{p, req.Context()})}, nil
	}
	return nil, p.wait(req.Context())
}

func (p failing) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.after):
		return errReset
	}
}

type failingBody struct {
	p   failing
	ctx context.Context
}

func (b failingBody) Read([]byte) (int, error) { return 0, b.p.wait(b.ctx) }

// What breaks off at the client's own deadline, or because of what its body does, speaks against no place. What breaks off
// long before does.
func TestTheClientsOwnEndSpeaksAgainstNobody(t *testing.T) {
	const deadline = time.Second
	for name, tc := range map[string]struct {
		after      time.Duration // when the place fails
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
					ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(deadline), relay.ErrLate)
					defer cancel()
					in, out := io.Pipe()
					defer out.Close()
					if tc.body > 0 {
						time.AfterFunc(tc.body, func() { _ = out.CloseWithError(errors.New("unexpected EOF")) })
					}
					body := relay.NewReplay(in)
					r := httptest.NewRequest(http.MethodPost, "/any.Service/Chat", in)
					req, err := relay.Onward(ctx, r, "http://place/", relay.GRPC, body.Open(), nil)
					if err != nil {
						t.Fatal(err)
					}
					go func() { _, _ = io.Copy(io.Discard, req.Body) }() // as a transport does
					f := relay.Forwarder{Transport: failing{tc.after, begun}}
					res := f.Through(ctx, httptest.NewRecorder(), req, relay.GRPC, nil)
					if res.Late != tc.late || res.ClientGone != tc.gone || res.Retryable != (!begun && !tc.late && !tc.gone) || res.Err == nil {
						t.Errorf("begun %v: %+v", begun, res)
					}
				})
			})
		}
	}
}
