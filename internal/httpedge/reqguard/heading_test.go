package reqguard

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// singleConnListener accepts one connection.
type singleConnListener struct {
	net.Listener
	conn net.Conn
}

func (o singleConnListener) Accept() (net.Conn, error) { return o.conn, nil }

func encodeFrame(kind, flags byte, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(append(append(b, flags), 0, 0, 0, 1)) + payload
}

// TestSlowHTTP2HeadEndsTheConnection: a head that is incomplete at its timeout closes the connection, however
// slowly it is sent. Bodies, silence and busy clients do not.
func TestSlowHTTP2HeadEndsTheConnection(t *testing.T) {
	const limit, long = 5 * time.Second, time.Minute
	whole := encodeFrame(headersFrame, endHeadersFlag, "all of it")
	drip := func(text string) []string { // one byte per second
		var out []string
		for i := range len(text) {
			out = append(out, text[i:i+1])
		}
		return out
	}
	repeat := func(text string, n int) (out []string) {
		for range n {
			out = append(out, text)
		}
		return out
	}
	for name, c := range map[string]struct {
		first  string
		later  []string // sent 1 s apart, repeatedly
		closed bool
	}{
		"a head that is left off":         {encodeFrame(headersFrame, 0, "a part"), nil, true},
		"one with a frame every second":   {encodeFrame(headersFrame, 0, "a part"), repeat(encodeFrame(continuationFrame, 0, "more"), 60), true},
		"one with a byte every second":    {"", drip(encodeFrame(headersFrame, endHeadersFlag, "the head of a request that will take a minute")), true},
		"empty continuations":             {encodeFrame(headersFrame, 0, ""), repeat(encodeFrame(continuationFrame, 0, ""), 60), true},
		"bytes of a continuation":         {encodeFrame(headersFrame, 0, "a part"), drip(encodeFrame(continuationFrame, endHeadersFlag, "the rest of the head of a request")), true},
		"a whole head":                    {whole, nil, false},
		"a head of two frames":            {encodeFrame(headersFrame, 0, "a part") + encodeFrame(continuationFrame, endHeadersFlag, "the rest"), nil, false},
		"a body that drips":               {whole, drip(encodeFrame(0, 1, "the body of a request, which has a bound of its own.")), false},
		"heads that end each other's cut": {whole + whole[:12], repeat(whole[12:]+whole[:12], 60), false},
		"frames that nobody knows":        {encodeFrame(77, 0, "x")[:10], nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				slow := 0
				conn, _ := (&GuardedListener{Listener: singleConnListener{conn: far}, HeadTimeout: limit, OnSlowHead: func() { slow++ }}).Accept()
				begun, ended := time.Now(), time.Duration(0)
				read := make(chan struct{})
				go func() {
					defer close(read)
					_, _ = io.Copy(io.Discard, conn)
					ended = time.Since(begun)
				}()
				_, err := io.WriteString(near, preface+c.first)
				for _, text := range c.later {
					if err != nil || time.Since(begun) > long {
						break
					}
					time.Sleep(time.Second)
					_, err = io.WriteString(near, text)
				}
				time.Sleep(long - time.Since(begun))
				if c.closed {
					<-read
					if slow != 1 || ended < limit || ended > limit+5*time.Second {
						t.Errorf("it ended after %v and was counted %d times, want %v and once", ended, slow, limit)
					}
				}
				_ = near.Close()
				_ = conn.Close()
				<-read
				time.Sleep(long) // until all timers have fired
				if !c.closed && (ended < long || slow != 0) {
					t.Errorf("it ended after %v and was counted %d times", ended, slow)
				}
			})
		})
	}
}
