package framing

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// one accepts one connection.
type one struct {
	net.Listener
	c net.Conn
}

func (o one) Accept() (net.Conn, error) { return o.c, nil }

func frameOf(kind, flags byte, payload string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(append(append(b, flags), 0, 0, 0, 1)) + payload
}

// TestAHeadOverHTTP2HasItsTime: a head that is not whole in time ends its connection, however it is drawn out. Bodies, silence
// and clients that are merely busy do not.
func TestAHeadOverHTTP2HasItsTime(t *testing.T) {
	const limit, long = 5 * time.Second, time.Minute
	whole := frameOf(headers, endHeaders, "all of it")
	drip := func(text string) []string { // a byte a second
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
		later  []string // a second apart, again and again
		closed bool
	}{
		"a head that is left off":         {frameOf(headers, 0, "a part"), nil, true},
		"one with a frame every second":   {frameOf(headers, 0, "a part"), repeat(frameOf(continued, 0, "more"), 60), true},
		"one with a byte every second":    {"", drip(frameOf(headers, endHeaders, "the head of a request that will take a minute")), true},
		"empty continuations":             {frameOf(headers, 0, ""), repeat(frameOf(continued, 0, ""), 60), true},
		"bytes of a continuation":         {frameOf(headers, 0, "a part"), drip(frameOf(continued, endHeaders, "the rest of the head of a request")), true},
		"a whole head":                    {whole, nil, false},
		"a head of two frames":            {frameOf(headers, 0, "a part") + frameOf(continued, endHeaders, "the rest"), nil, false},
		"a body that drips":               {whole, drip(frameOf(0, 1, "the body of a request, which has a bound of its own.")), false},
		"heads that end each other's cut": {whole + whole[:12], repeat(whole[12:]+whole[:12], 60), false},
		"frames that nobody knows":        {frameOf(77, 0, "x")[:10], nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				slow := 0
				conn, _ := (&Listener{Listener: one{c: far}, HeadTimeout: limit, Slow: func() { slow++ }}).Accept()
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
				time.Sleep(long) // whatever was set goes off
				if !c.closed && (ended < long || slow != 0) {
					t.Errorf("it ended after %v and was counted %d times", ended, slow)
				}
			})
		})
	}
}
