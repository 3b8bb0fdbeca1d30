package regional_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/regional"
)

// A worker dies under a call that goes both ways, while its client has nothing to say: the client hears of it at once.
func TestASilentClientHearsThatItsWorkerDied(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("encrypted %v, begun %v", encrypted, begun), func(t *testing.T) {
				w := newWorld(t)
				creds := insecure.NewCredentials()
				g := w.gateway("fra", func(c *regional.Config) {
					if encrypted {
						files := w.frontFiles("front")
						c.HTTPCert, c.HTTPKey = files.Cert, files.Key
						creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
					}
				})
				callee := newCallee(t)
				w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: standIn(t), GRPC: "http://" + callee.addr, Weight: 1})
				conn := w.dial(g, creds)
				var out []byte
				eventually(t, "a call is answered", func() bool {
					in := infer("small")
					return conn.Invoke(asking(t.Context()), inferMethod, &in, &out) == nil
				})
				method := map[bool]string{false: "Hang", true: "Greet"}[begun]
				for len(callee.asked) > 0 {
					<-callee.asked
				}
				s, err := conn.NewStream(asking(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/"+method)
				must(t, err)
				if begun {
					in := []byte("one")
					must(t, s.SendMsg(&in))
					must(t, s.RecvMsg(&out))
				} else {
					<-callee.asked
				}
				callee.stop()
				if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
			})
		}
	}
}

// So it does when the zone's instance dies that the call went to, before it said a word.
func TestASilentClientHearsThatItsZoneDied(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	callee := newCallee(t)
	a := w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: standIn(t), GRPC: "http://" + callee.addr, Weight: 1})
	conn := w.dial(g, insecure.NewCredentials())
	var out []byte
	eventually(t, "a call is answered", func() bool {
		in := infer("small")
		return conn.Invoke(asking(t.Context()), inferMethod, &in, &out) == nil
	})
	for len(callee.asked) > 0 {
		<-callee.asked
	}
	s, err := conn.NewStream(asking(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Hang")
	must(t, err)
	<-callee.asked
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.Stop(now) // what it was doing is cut short
	if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
