package grpcmeta_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

// readModels feeds a call in pieces and returns the checked models.
func readModels(call []byte, step int, refuse string) (models []string, e *openai.Error) {
	f := grpcmeta.MessageModelReader{CheckModel: func(model string, first bool) *openai.Error {
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
		e = f.FeedBytes(call[:n])
		call = call[n:]
	}
	return models, e
}

func TestMessageModelReader(t *testing.T) {
	twice := append(encodeInferRequest("a"), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "b")...)
	call := slices.Concat(frameMessage(encodeInferRequest("small")), frameMessage(nil), frameMessage(encodeInferRequest("large")), frameMessage(twice))
	for _, step := range []int{1, 2, 7, 100, len(call)} {
		if got, e := readModels(call, step, ""); e != nil || !slices.Equal(got, []string{"small first", "large", "a", "b"}) {
			t.Errorf("in steps of %d: %v, %v", step, got, e)
		}
		if got, e := readModels(call, step, "b"); e == nil || len(got) != 4 {
			t.Errorf("a second field 1 is not judged: %v, %v", got, e)
		}
	}
	compressed := frameMessage(encodeInferRequest("small"))
	compressed[0] = 1
	for name, bad := range map[string][]byte{
		"compressed": compressed, "a group": frameMessage([]byte{1<<3 | 3}), "field 0": frameMessage([]byte{2, 1, 'x'}), "cut in a field": frameMessage([]byte{1<<3 | 2, 9, 'x'}),
		"a name without an end": frameMessage(append([]byte{1<<3 | 2, 0xff, 0xff, 0x7f}, strings.Repeat("x", 100)...)),
		"a tag without an end":  frameMessage([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
	} {
		if got, e := readModels(bad, 3, ""); e == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzMessageModelReader: the result does not depend on the split, and equals that of FindModel.
func FuzzMessageModelReader(f *testing.F) {
	f.Add(encodeInferRequest("small"), 3)
	f.Add([]byte{0x0a, 0x01, 'x', 0x0a, 0x01, 'y'}, 1)
	f.Fuzz(func(t *testing.T, msg []byte, step int) {
		step = 1 + int(uint(step)%32)
		call := slices.Concat(frameMessage(msg), frameMessage(encodeInferRequest("next")))
		whole, e := readModels(call, len(call), "")
		pieces, e2 := readModels(call, step, "")
		if !slices.Equal(whole, pieces) || (e == nil) != (e2 == nil) {
			t.Fatalf("%x: %v %v, in steps of %d %v %v", msg, whole, e, step, pieces, e2)
		}
		if name, _, _, ok := grpcmeta.FindModel(msg); ok && e == nil && !slices.Equal(whole, []string{name + " first", "next"}) {
			t.Fatalf("%x: Model reads %q, the follower %q", msg, name, whole)
		}
	})
}
