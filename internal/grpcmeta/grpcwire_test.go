package grpcmeta_test

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

func TestParseTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{"1S": time.Second, "250m": 250 * time.Millisecond, "99999999H": 365 * 24 * time.Hour, "7u": 7 * time.Microsecond, "3n": 3, "2M": 2 * time.Minute} {
		if got, ok := grpcmeta.ParseTimeout(s); !ok || got != want {
			t.Errorf("%s: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "S", "1", "1s", "-1S", "123456789S", "1 S", "+1S"} {
		if got, ok := grpcmeta.ParseTimeout(s); ok {
			t.Errorf("%q is read as %v", s, got)
		}
	}
	for _, d := range []time.Duration{1, time.Millisecond, time.Hour, 1000 * time.Hour, 99_999 * time.Hour} {
		if got, ok := grpcmeta.ParseTimeout(grpcmeta.FormatTimeout(d)); !ok || got < d && got < 365*24*time.Hour || got > d+time.Second {
			t.Errorf("%v comes back as %v", d, got)
		}
	}
}

// encodeInferRequest returns a request of the inference service: id, model, and a tensor.
func encodeInferRequest(model string) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "id")
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), model)
	b = protowire.AppendVarint(protowire.AppendTag(b, 9, protowire.VarintType), 300)
	return protowire.AppendBytes(protowire.AppendTag(b, 7, protowire.BytesType), make([]byte, 1000))
}

func frameMessage(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
}

func TestFindModel(t *testing.T) {
	msg := encodeInferRequest("small")
	for _, n := range []int{len(msg), 40, 11} { // complete, cut in the tensor, and cut directly after the model
		name, start, end, ok := grpcmeta.FindModel(msg[:n])
		if !ok || name != "small" || string(msg[start:end]) != "\x0a\x05small" {
			t.Errorf("the first %d bytes: %q %v", n, name, ok)
		}
	}
	for _, n := range []int{0, 5, 8} {
		if name, _, _, ok := grpcmeta.FindModel(msg[:n]); ok {
			t.Errorf("the first %d bytes name %q", n, name)
		}
	}
	if _, _, _, ok := grpcmeta.FindModel(append(encodeInferRequest("a"), encodeInferRequest("b")...)); ok {
		t.Error("two models are one")
	}
	f := frameMessage(msg)
	_, start, end, _ := grpcmeta.FindModel(msg)
	if got := grpcmeta.ReplaceModel(f[:60], start, end, "a-longer-name"); !bytes.Equal(got, frameMessage(encodeInferRequest("a-longer-name"))[:68]) {
		t.Errorf("with another model it is %x", got)
	}
}

func FuzzFindModel(f *testing.F) {
	f.Add(encodeInferRequest("small"), "other")
	f.Add([]byte{0x0a, 0x80}, "")
	f.Fuzz(func(t *testing.T, msg []byte, other string) {
		name, start, end, ok := grpcmeta.FindModel(msg)
		if !ok {
			return
		}
		if start < 0 || end > len(msg) || !bytes.HasSuffix(msg[start:end], []byte(name)) {
			t.Fatalf("%x: %q at %d to %d", msg, name, start, end)
		}
		again := grpcmeta.ReplaceModel(frameMessage(msg), start, end, other)
		if size, _ := grpcmeta.ParseFrameHeader(again); size != int64(len(again)-grpcmeta.FrameHeaderBytes) {
			t.Fatalf("%x says that it has %d bytes", again, size)
		}
		if back, _, _, ok := grpcmeta.FindModel(again[grpcmeta.FrameHeaderBytes:]); !ok || back != other {
			t.Fatalf("%x: %q became %q, not %q", msg, name, back, other)
		}
	})
}

func FuzzParseTimeout(f *testing.F) {
	f.Add("10S")
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := grpcmeta.ParseTimeout(s); ok && (d < 0 || d > 365*24*time.Hour) {
			t.Fatalf("%q is %v", s, d)
		}
	})
}

func TestEscapeMessage(t *testing.T) {
	for _, s := range []string{"plain", "100% ü\r\n\x00~"} {
		got := grpcmeta.EscapeMessage(s)
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

func TestStatusCode(t *testing.T) {
	for want, e := range map[int]*openai.Error{
		grpcmeta.Unauthenticated: openai.InvalidAPIKey(), grpcmeta.NotFound: openai.ModelNotFound("x", nil), grpcmeta.PermissionDenied: openai.ModelNotAllowed("x"),
		grpcmeta.ResourceExhausted: openai.RateLimited(openai.CodeTokens, 1), grpcmeta.Unavailable: openai.NoCapacity("x", 1), grpcmeta.DeadlineExceeded: openai.DeadlineUnmeetable("x"),
		grpcmeta.InvalidArgument: openai.ModelRequired(), grpcmeta.Internal: {Status: 500}, grpcmeta.Unimplemented: {Status: 404, Code: openai.CodeNotFound},
	} {
		if got := grpcmeta.StatusCode(e); got != want {
			t.Errorf("%s: %d, want %d", e.Code, got, want)
		}
	}
}
