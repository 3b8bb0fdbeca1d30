package grpcwire_test

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

func TestTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{"1S": time.Second, "250m": 250 * time.Millisecond, "99999999H": 365 * 24 * time.Hour, "7u": 7 * time.Microsecond, "3n": 3, "2M": 2 * time.Minute} {
		if got, ok := grpcwire.Timeout(s); !ok || got != want {
			t.Errorf("%s: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "S", "1", "1s", "-1S", "123456789S", "1 S", "+1S"} {
		if got, ok := grpcwire.Timeout(s); ok {
			t.Errorf("%q is read as %v", s, got)
		}
	}
	for _, d := range []time.Duration{1, time.Millisecond, time.Hour, 1000 * time.Hour, 99_999 * time.Hour} {
		if got, ok := grpcwire.Timeout(grpcwire.FormatTimeout(d)); !ok || got < d && got < 365*24*time.Hour || got > d+time.Second {
			t.Errorf("%v comes back as %v", d, got)
		}
	}
}

// message is one of the inference service's: id, model, and a tensor.
func message(model string) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "id")
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), model)
	b = protowire.AppendVarint(protowire.AppendTag(b, 9, protowire.VarintType), 300)
	return protowire.AppendBytes(protowire.AppendTag(b, 7, protowire.BytesType), make([]byte, 1000))
}

func framed(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
}

func TestModel(t *testing.T) {
	msg := message("small")
	for _, n := range []int{len(msg), 40, 11} { // whole, and cut in the tensor and right behind the model
		name, start, end, ok := grpcwire.Model(msg[:n])
		if !ok || name != "small" || string(msg[start:end]) != "\x0a\x05small" {
			t.Errorf("the first %d bytes: %q %v", n, name, ok)
		}
	}
	for _, n := range []int{0, 5, 8} {
		if name, _, _, ok := grpcwire.Model(msg[:n]); ok {
			t.Errorf("the first %d bytes name %q", n, name)
		}
	}
	if _, _, _, ok := grpcwire.Model(append(message("a"), message("b")...)); ok {
		t.Error("two models are one")
	}
	f := framed(msg)
	_, start, end, _ := grpcwire.Model(msg)
	if got := grpcwire.WithModel(f[:60], start, end, "a-longer-name"); !bytes.Equal(got, framed(message("a-longer-name"))[:68]) {
		t.Errorf("with another model it is %x", got)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(message("small"), "other")
	f.Add([]byte{0x0a, 0x80}, "")
	f.Fuzz(func(t *testing.T, msg []byte, other string) {
		name, start, end, ok := grpcwire.Model(msg)
		if !ok {
			return
		}
		if start < 0 || end > len(msg) || !bytes.HasSuffix(msg[start:end], []byte(name)) {
			t.Fatalf("%x: %q at %d to %d", msg, name, start, end)
		}
		again := grpcwire.WithModel(framed(msg), start, end, other)
		if size, _ := grpcwire.Frame(again); size != int64(len(again)-grpcwire.FrameHead) {
			t.Fatalf("%x says that it has %d bytes", again, size)
		}
		if back, _, _, ok := grpcwire.Model(again[grpcwire.FrameHead:]); !ok || back != other {
			t.Fatalf("%x: %q became %q, not %q", msg, name, back, other)
		}
	})
}

func FuzzTimeout(f *testing.F) {
	f.Add("10S")
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := grpcwire.Timeout(s); ok && (d < 0 || d > 365*24*time.Hour) {
			t.Fatalf("%q is %v", s, d)
		}
	})
}

func TestEscape(t *testing.T) {
	for _, s := range []string{"plain", "100% ü\r\n\x00~"} {
		got := grpcwire.Escape(s)
		back, err := url.PathUnescape(got)
		if err != nil || back != s {
			t.Errorf("%q becomes %q and %q (%v)", s, got, back, err)
		}
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				t.Errorf("%q holds %x", got, got[i])
			}
		}
	}
}

func TestCode(t *testing.T) {
	for want, e := range map[int]*openai.Error{
		grpcwire.Unauthenticated: openai.InvalidAPIKey(), grpcwire.NotFound: openai.ModelNotFound("x", nil), grpcwire.PermissionDenied: openai.ModelNotAllowed("x"),
		grpcwire.ResourceExhausted: openai.RateLimit(openai.CodeTokens, 1), grpcwire.Unavailable: openai.NoCapacity("x", 1), grpcwire.DeadlineExceeded: openai.DeadlineUnmeetable("x"),
		grpcwire.InvalidArgument: openai.ModelRequired(), grpcwire.Internal: {Status: 500}, grpcwire.Unimplemented: {Status: 404, Code: openai.CodeNotFound},
	} {
		if got := grpcwire.Code(e); got != want {
			t.Errorf("%s: %d, want %d", e.Code, got, want)
		}
	}
}
