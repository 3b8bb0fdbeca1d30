package grpcwire_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// follow feeds a call in pieces and returns the models that were judged.
func follow(call []byte, step int, refuse string) (models []string, e *openai.Error) {
	f := grpcwire.Follower{Judge: func(model string, first bool) *openai.Error {
		if first {
			model += " first"
		}
		if models = append(models, model); model == refuse {
			return openai.ModelNotAllowed(model)
		}
		return nil
	}}
	for len(call) > 0 && e == nil {
		n := min(step, len(call))
		e = f.Feed(call[:n])
		call = call[n:]
	}
	return models, e
}

func TestFollower(t *testing.T) {
	twice := append(message("a"), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "b")...)
	call := slices.Concat(framed(message("small")), framed(nil), framed(message("large")), framed(twice))
	for _, step := range []int{1, 2, 7, 100, len(call)} {
		if got, e := follow(call, step, ""); e != nil || !slices.Equal(got, []string{"small first", "large", "a", "b"}) {
			t.Errorf("in steps of %d: %v, %v", step, got, e)
		}
		if got, e := follow(call, step, "b"); e == nil || len(got) != 4 {
			t.Errorf("a second field 1 is not judged: %v, %v", got, e)
		}
	}
	compressed := framed(message("small"))
	compressed[0] = 1
	for name, bad := range map[string][]byte{
		"compressed": compressed, "a group": framed([]byte{1<<3 | 3}), "field 0": framed([]byte{2, 1, 'x'}), "cut in a field": framed([]byte{1<<3 | 2, 9, 'x'}),
		"a name without an end": framed(append([]byte{1<<3 | 2, 0xff, 0xff, 0x7f}, strings.Repeat("x", 100)...)),
		"a tag without an end":  framed([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
	} {
		if got, e := follow(bad, 3, ""); e == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzFollower holds that it reads the same of a message in any pieces, and what Model reads of it.
func FuzzFollower(f *testing.F) {
	f.Add(message("small"), 3)
	f.Add([]byte{0x0a, 0x01, 'x', 0x0a, 0x01, 'y'}, 1)
	f.Fuzz(func(t *testing.T, msg []byte, step int) {
		step = 1 + int(uint(step)%32)
		call := slices.Concat(framed(msg), framed(message("next")))
		whole, e := follow(call, len(call), "")
		pieces, e2 := follow(call, step, "")
		if !slices.Equal(whole, pieces) || (e == nil) != (e2 == nil) {
			t.Fatalf("%x: %v %v, in steps of %d %v %v", msg, whole, e, step, pieces, e2)
		}
		if name, _, _, ok := grpcwire.Model(msg); ok && e == nil && !slices.Equal(whole, []string{name + " first", "next"}) {
			t.Fatalf("%x: Model reads %q, the follower %q", msg, name, whole)
		}
	})
}
