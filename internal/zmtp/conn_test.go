package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connectPair opens both ends of a pipe.
func connectPair(t *testing.T, a, b string) (*PeerConn, *PeerConn) {
	t.Helper()
	left, right := net.Pipe()
	t.Cleanup(func() { left.Close(); right.Close() })
	type opened struct {
		z   *PeerConn
		err error
	}
	other := make(chan opened, 1)
	go func() {
		z, err := OpenPeer(bufferedPipe(right), b)
		other <- opened{z, err}
	}()
	x, err := OpenPeer(bufferedPipe(left), a)
	if err != nil {
		t.Fatal(err)
	}
	y := <-other
	if y.err != nil {
		t.Fatal(y.err)
	}
	return x, y.z
}

// bufferedPipe lets both ends write before either reads, as sockets do.
func bufferedPipe(c net.Conn) net.Conn {
	written := make(chan struct{})
	close(written)
	return &bufferedConn{Conn: c, lastWrite: written}
}

type bufferedConn struct {
	net.Conn
	mu        sync.Mutex
	lastWrite chan struct{} // closed after the last write
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, written, text := b.lastWrite, make(chan struct{}), bytes.Clone(p)
	b.lastWrite = written
	go func() {
		defer close(written)
		<-before
		_, _ = b.Conn.Write(text) // ends when the pipe is closed
	}()
	return len(p), nil
}

func TestMessagesPassBothWays(t *testing.T) {
	pub, sub := connectPair(t, Pub, Sub)
	if err := sub.SubscribeTopic("kv@"); err != nil {
		t.Fatal(err)
	}
	got, err := pub.ReceiveMessage()
	if err != nil || len(got) != 1 || string(got[0]) != "\x01kv@" {
		t.Fatalf("the publisher got %q, %v", got, err)
	}
	long := bytes.Repeat([]byte("x"), 300<<10)
	if err := pub.SendMessage([]byte("kv@a"), []byte("12345678"), long); err != nil {
		t.Fatal(err)
	}
	got, err = sub.ReceiveMessage()
	if err != nil || len(got) != 3 || string(got[0]) != "kv@a" || !bytes.Equal(got[2], long) {
		t.Fatalf("%d frames, %v", len(got), err)
	}
}

func TestPingIsAnswered(t *testing.T) {
	a, b := connectPair(t, Dealer, Router)
	if err := a.writeFrame(flagCommand, append([]byte("\x04PING\x00\x10"), "context"...)); err != nil {
		t.Fatal(err)
	}
	if err := a.SendMessage([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.ReceiveMessage(); err != nil || string(got[0]) != "after" {
		t.Fatalf("%q, %v", got, err)
	}
	flags, body, err := a.readFrame(nil, maxCommandBytes)
	if err != nil || flags != flagCommand || string(body) != "\x04PONGcontext" {
		t.Fatalf("%d %q %v", flags, body, err)
	}
}

func TestWrongPeerKindsAreRefused(t *testing.T) {
	peer := func(g []byte, kind string) io.Reader {
		return io.MultiReader(bytes.NewReader(g), bytes.NewReader(appendFrame(nil, flagCommand, buildReady(kind))))
	}
	curve := buildGreeting()
	copy(curve[12:], "CURVE")
	old := buildGreeting()
	old[10] = 1
	for name, c := range map[string]struct {
		from io.Reader
		want string
	}{
		"another kind": {peer(buildGreeting(), Router), `it is a "ROUTER" socket`},
		"a key":        {peer(curve, Pub), "only NULL"},
		"an old one":   {peer(old, Pub), "not ZMTP 3"},
		"no ZeroMQ":    {strings.NewReader("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), "not ZMTP 3"},
		"nothing":      {strings.NewReader(""), "EOF"},
	} {
		err := newPeerConn(struct {
			io.Reader
			io.Writer
		}{c.from, io.Discard}).shakeHands(Sub)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

// TestAnnouncedLengthAllocatesNothing: a peer that announces much and sends little causes no allocation.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	for _, size := range []uint64{MaxMessageBytes + 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		b := binary.BigEndian.AppendUint64([]byte{flagLong}, size)
		if _, err := newReadOnlyConn(b).ReceiveMessage(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a frame of %d bytes: %v", size, err)
		}
	}
	z := newReadOnlyConn(append(binary.BigEndian.AppendUint64([]byte{flagLong}, MaxMessageBytes), "little"...))
	if _, err := z.ReceiveMessage(); !errors.Is(err, io.ErrUnexpectedEOF) || cap(z.buf) > 4*readChunkBytes {
		t.Errorf("%v with %d bytes kept", err, cap(z.buf))
	}
	if _, err := newReadOnlyConn(bytes.Repeat([]byte{flagMore, 0}, 100)).ReceiveMessage(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a hundred frames: %v", err)
	}
}

func newReadOnlyConn(b []byte) *PeerConn {
	return newPeerConn(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(b), io.Discard})
}

func FuzzReceiveMessage(f *testing.F) {
	f.Add([]byte("\x01\x03abc\x00\x01d"))
	f.Add([]byte("\x04\x08\x04PING\x00\x01x\x00\x01d"))
	f.Add(append(buildGreeting(), appendFrame(nil, flagCommand, buildReady(Pub))...))
	f.Add(binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<62))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = newReadOnlyConn(b).shakeHands(Sub)
		z := newReadOnlyConn(b)
		total := 0
		for {
			frames, err := z.ReceiveMessage()
			if err != nil {
				break
			}
			if len(frames) == 0 || len(frames) > MaxFrames {
				t.Fatalf("%d frames", len(frames))
			}
			for _, f := range frames {
				total += len(f)
			}
		}
		if total > len(b) {
			t.Fatalf("%d bytes came of %d", total, len(b))
		}
	})
}
