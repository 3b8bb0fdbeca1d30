package relay_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/relay"
)

// A place takes the head of a call and dies, while the client has nothing to say. Nobody waits for the client.
func TestAPlaceThatDiesUnderASilentClient(t *testing.T) {
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
	tr := relay.NewTransport(nil)
	relay.TellEnds(tr)
	defer tr.CloseIdleConnections()
	body := relay.NewReplay(in)
	r := httptest.NewRequest(http.MethodPost, "/any.Service/Chat", in)
	for _, kind := range []relay.Kind{relay.GRPC, relay.Usual} {
		req, err := relay.Onward(context.Background(), r, "http://"+l.Addr().String(), kind, body.Open(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := relay.Forwarder{Transport: tr}
		if res := f.Through(context.Background(), httptest.NewRecorder(), req, kind, nil); !res.Retryable || res.ClientGone {
			t.Errorf("%+v", res)
		}
		if !body.Again() {
			t.Error("the call cannot be tried elsewhere")
		}
	}
}
