package forward_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

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
	for _, kind := range []forward.ForwardKind{forward.GRPC, forward.Buffered} {
		req, err := forward.NewStreamingRequest(context.Background(), r, "http://"+l.Addr().String(), kind, body.OpenReader(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := forward.Forwarder{Transport: tr}
		if res := f.ForwardStreaming(context.Background(), httptest.NewRecorder(), req, kind, nil); !res.Retryable || res.ClientGone {
			t.Errorf("%+v", res)
		}
		if !body.CanReplay() {
			t.Error("the call cannot be tried elsewhere")
		}
	}
}
