package kvevents

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// summarizeBatch formats a batch: S3<-1 for a block stored behind another, R for removed, C for cleared, numbered in
// order of appearance.
func summarizeBatch(b *EventBatch) string {
	names := map[uint64]int{}
	name := func(h uint64) int {
		if names[h] == 0 {
			names[h] = len(names) + 1
		}
		return names[h]
	}
	var out []string
	for _, e := range b.Events {
		var hs []string
		for _, h := range e.Hashes {
			hs = append(hs, fmt.Sprint(name(h)))
		}
		s := strings.Join(hs, ",")
		switch e.Kind {
		case BlocksStored:
			s = fmt.Sprintf("S%s/%d", s, e.BlockTokens)
			if e.HasParent {
				s += fmt.Sprintf("<-%d", name(e.Parent))
			}
		case BlocksRemoved:
			s = "R" + s
		case BlocksCleared:
			s = "C"
		}
		out = append(out, fmt.Sprintf("%s:%d", s, e.Group))
	}
	return strings.Join(out, " ")
}

// TestDecodeArrayAndMapForms decodes batches that another MessagePack library encoded from vLLM's types.
func TestDecodeArrayAndMapForms(t *testing.T) {
	for _, c := range []struct {
		file, want string
		rank       int
		ignored    int
	}{
		{"array", "S1,2/16:0 S3/16<-2:-1 R2,3:-1 C:-1", 3, 2},
		{"map", "S1,2/16:1 S3/16<-2:-1 R2:1 C:-1", -1, 3},
	} {
		payload, err := os.ReadFile("testdata/" + c.file + ".msgpack")
		if err != nil {
			t.Fatal(err)
		}
		var d Decoder
		for range 2 { // state kept between batches has no effect
			b, err := d.DecodeBatch(payload)
			if err != nil {
				t.Fatalf("%s: %v", c.file, err)
			}
			if got := summarizeBatch(b); got != c.want || b.Rank != c.rank || b.Ignored != c.ignored {
				t.Errorf("%s: %s, rank %d, %d ignored; want %s, %d, %d", c.file, got, b.Rank, b.Ignored, c.want, c.rank, c.ignored)
			}
		}
	}
}

func TestMalformedBatchIsRefused(t *testing.T) {
	var d Decoder
	for name, p := range map[string][]byte{
		"nothing":        {},
		"a number":       {7},
		"no events":      {0x91, 0},
		"a lie":          {0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"a deep nest":    append([]byte{0x93, 0, 0x90}, bytes.Repeat([]byte{0x91}, 1<<20)...),
		"a cut hash":     {0x92, 0, 0x91, 0x92, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd', 0x91, 0xcf, 1, 2},
		"a long nothing": {0x92, 0xdb, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if _, err := d.DecodeBatch(p); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	// An invalid event is skipped.
	b, err := d.DecodeBatch([]byte{0x92, 0, 0x93, 0x92, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v', 'e', 'd', 0xa1, 'x', 5, 0x92, 0xac, 'B', 'l', 'o', 'c', 'k', 'R', 'e', 'm', 'o', 'v', 'e', 'd', 0x91, 9})
	if err != nil || b.Ignored != 2 || summarizeBatch(b) != "R1:-1" {
		t.Errorf("%v: %+v", err, b)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, name := range []string{"array", "map"} {
		b, err := os.ReadFile("testdata/" + name + ".msgpack")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x83, 0xa6, 'e', 'v', 'e', 'n', 't', 's', 0x90})
	var d Decoder
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := d.DecodeBatch(p)
		if err != nil {
			return
		}
		n := 0
		for _, e := range b.Events {
			n += len(e.Hashes)
			if e.Kind == BlocksStored && (len(e.Hashes) == 0 || e.BlockTokens <= 0 || e.BlockTokens > maxBlockTokens) || e.Group < -1 {
				t.Fatalf("%+v", e)
			}
		}
		if n > len(p) || b.Rank < -1 || b.Rank > maxRank {
			t.Fatalf("%d blocks of %d bytes, rank %d", n, len(p), b.Rank)
		}
	})
}

// BenchmarkDecodeBatch decodes a step of 512 blocks of 16 tokens as vLLM encodes it, with this package and with the
// MessagePack library that Raft brings.
func BenchmarkDecodeBatch(b *testing.B) {
	payload := []byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x95, 0xab}
	payload = append(payload, "BlockStored"...)
	payload = append(payload, 0xdc, 2, 0)
	for i := range 512 {
		payload = append(payload, 0xcf, 1, 2, 3, 4, 5, 6, byte(i>>8), byte(i))
	}
	payload = append(payload, 0xc0, 0xdc, 0x20, 0)
	for i := range 8192 {
		payload = append(payload, 0xcd, byte(i>>8)|1, byte(i))
	}
	payload = append(payload, 16, 0)
	var d Decoder
	decode := func() error {
		got, err := d.DecodeBatch(payload)
		if err == nil && len(got.Events) != 1 {
			err = errMalformedPack
		}
		return err
	}
	var h codec.MsgpackHandle
	h.RawToString = true
	reader := codec.NewDecoderBytes(nil, &h)
	var batch struct {
		_struct bool `codec:",toarray"` //nolint:unused // makes the library read an array
		Time    float64
		Events  [][]any
	}
	decodeByLibrary := func() error {
		reader.ResetBytes(payload)
		return reader.Decode(&batch)
	}
	for name, run := range map[string]func() error{"own": decode, "library": decodeByLibrary} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/block")
		})
	}
}
