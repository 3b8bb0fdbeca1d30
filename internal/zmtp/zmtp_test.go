package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// meet opens both ends of a pipe.
func meet(t *testing.T, a, b string) (*Conn, *Conn) {
	t.Helper()
	left, right := net.Pipe()
	t.Cleanup(func() { left.Close(); right.Close() })
	type opened struct {
		z   *Conn
		err error
	}
	other := make(chan opened, 1)
	go func() {
		z, err := Open(pipe(right), b)
		other <- opened{z, err}
	}()
	x, err := Open(pipe(left), a)
	if err != nil {
		t.Fatal(err)
	}
	y := <-other
	if y.err != nil {
		t.Fatal(y.err)
	}
	return x, y.z
}

// pipe lets both ends write before either reads, as sockets do.
func pipe(c net.Conn) net.Conn { return &buffered{Conn: c, out: make(chan []byte, 64)} }

type buffered struct {
	net.Conn
	out chan []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	go b.Conn.Write(bytes.Clone(p)) // a closed pipe ends it
	time.Sleep(time.Millisecond)    // keeps the order of writes
	return len(p), nil
}

func TestMessagesPassBothWays(t *testing.T) {
	pub, sub := meet(t, Pub, Sub)
	if err := sub.Subscribe("kv@"); err != nil {
		t.Fatal(err)
	}
	got, err := pub.Recv()
	if err != nil || len(got) != 1 || string(got[0]) != "\x01kv@" {
		t.Fatalf("the publisher got %q, %v", got, err)
	}
	long := bytes.Repeat([]byte("x"), 300<<10)
	if err := pub.Send([]byte("kv@a"), []byte("12345678"), long); err != nil {
		t.Fatal(err)
	}
	got, err = sub.Recv()
	if err != nil || len(got) != 3 || string(got[0]) != "kv@a" || !bytes.Equal(got[2], long) {
		t.Fatalf("%d frames, %v", len(got), err)
	}
}

func TestPingIsAnswered(t *testing.T) {
	a, b := meet(t, Dealer, Router)
	if err := a.write(flagCommand, append([]byte("\x04PING\x00\x10"), "context"...)); err != nil {
		t.Fatal(err)
	}
	if err := a.Send([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Recv(); err != nil || string(got[0]) != "after" {
		t.Fatalf("%q, %v", got, err)
	}
	flags, body, err := a.frame(nil, maxCommand)
	if err != nil || flags != flagCommand || string(body) != "\x04PONGcontext" {
		t.Fatalf("%d %q %v", flags, body, err)
	}
}

func TestWrongPeersAreRefused(t *testing.T) {
	peer := func(g []byte, kind string) io.Reader {
		return io.MultiReader(bytes.NewReader(g), bytes.NewReader(appendFrame(nil, flagCommand, ready(kind))))
	}
	curve := greeting()
	copy(curve[12:], "CURVE")
	old := greeting()
	old[10] = 1
	for name, c := range map[string]struct {
		from io.Reader
		want string
	}{
		"another kind": {peer(greeting(), Router), `it is a "ROUTER" socket`},
		"a key":        {peer(curve, Pub), "only NULL"},
		"an old one":   {peer(old, Pub), "not ZMTP 3"},
		"no ZeroMQ":    {strings.NewReader("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), "not ZMTP 3"},
		"nothing":      {strings.NewReader(""), "EOF"},
	} {
		err := newConn(struct {
			io.Reader
			io.Writer
		}{c.from, io.Discard}).greet(Sub)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

// TestAnnouncedLengthsCostNothing: a peer that announces much and sends little takes no memory.
func TestAnnouncedLengthsCostNothing(t *testing.T) {
	for _, size := range []uint64{MaxMessage + 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		b := binary.BigEndian.AppendUint64([]byte{flagLong}, size)
		if _, err := reader(b).Recv(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a frame of %d bytes: %v", size, err)
		}
	}
	z := reader(append(binary.BigEndian.AppendUint64([]byte{flagLong}, MaxMessage), "little"...))
	if _, err := z.Recv(); !errors.Is(err, io.ErrUnexpectedEOF) || cap(z.buf) > 4*piece {
		t.Errorf("%v with %d bytes kept", err, cap(z.buf))
	}
	if _, err := reader(bytes.Repeat([]byte{flagMore, 0}, 100)).Recv(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a hundred frames: %v", err)
	}
}

func reader(b []byte) *Conn {
	return newConn(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(b), io.Discard})
}

func FuzzRecv(f *testing.F) {
	f.Add([]byte("\x01\x03abc\x00\x01d"))
	f.Add([]byte("\x04\x08\x04PING\x00\x01x\x00\x01d"))
	f.Add(append(greeting(), appendFrame(nil, flagCommand, ready(Pub))...))
	f.Add(binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<62))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = reader(b).greet(Sub)
		z := reader(b)
		total := 0
		for {
			frames, err := z.Recv()
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
