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

// When a worker dies during a bidirectional call while its client sends nothing, the client receives the error at
// once.
func TestIdleStreamEndsWhenWorkerDies(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("encrypted %v, begun %v", encrypted, begun), func(t *testing.T) {
				w := newWorld(t)
				creds := insecure.NewCredentials()
				g := w.startGateway("fra", func(c *regional.Config) {
					if encrypted {
						files := w.issuePublicCert("front")
						c.HTTPCert, c.HTTPKey = files.Cert, files.Key
						creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
					}
				})
				callee := newGRPCWorker(t)
				w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
				conn := w.dialGRPC(g, creds)
				var out []byte
				waitForZoneSpec(t, conn)
				method := map[bool]string{false: "Hang", true: "Greet"}[begun]
				for len(callee.metadata) > 0 {
					<-callee.metadata
				}
				s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/"+method)
				requireNoError(t, err)
				if begun {
					in := []byte("one")
					requireNoError(t, s.SendMsg(&in))
					requireNoError(t, s.RecvMsg(&out))
				} else {
					<-callee.metadata
				}
				callee.stop()
				if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
			})
		}
	}
}

// The same holds when the zone's instance dies before it has sent a byte.
func TestIdleStreamEndsWhenZoneDies(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	callee := newGRPCWorker(t)
	a := w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	var out []byte
	waitForZoneSpec(t, conn)
	for len(callee.metadata) > 0 {
		<-callee.metadata
	}
	s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Hang")
	requireNoError(t, err)
	<-callee.metadata
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.Stop(now) // its work is cut short
	if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
