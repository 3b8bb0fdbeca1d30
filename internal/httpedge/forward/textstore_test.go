package forward

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Packed text is unpacked unchanged, also with concurrent users.
func TestTextStorePacksLosslessly(t *testing.T) {
	v := NewTextStore(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 1, 4096).Draw(t, "piece")
		got, err := v.UnpackBlock([]byte("before "), v.PackBlock(piece))
		if err != nil || !bytes.Equal(got, append([]byte("before "), piece...)) {
			t.Fatalf("%q became %q (%v)", piece, got, err)
		}
	})
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog, ", 23)[:1024])
	done := make(chan []byte)
	for range 4 {
		go func() { done <- v.PackBlock(text) }()
	}
	for range 4 {
		packed := <-done
		if got, err := v.UnpackBlock(nil, packed); err != nil || !bytes.Equal(got, text) || len(packed) > len(text)/2 {
			t.Errorf("%d bytes were packed to %d and became %q (%v)", len(text), len(packed), got, err)
		}
	}
	if _, err := v.UnpackBlock(nil, []byte("\xff\xff rubbish")); err == nil {
		t.Error("rubbish was unpacked")
	}
}

// When space is scarce, the longest texts are dropped first, and the bound holds.
func TestTextStoreFavoursShortTexts(t *testing.T) {
	v := NewTextStore(64 << 10)
	long, short := 0, 0
	for v.ReserveRoom(512, long) {
		long += 512
	}
	for v.ReserveRoom(256, 0) {
		short++
	}
	if long == 0 || long > 2<<10 || short < 100 || v.HeldBytes() != int64(long+256*short) || v.HeldBytes() > 64<<10 {
		t.Errorf("one stream took %d bytes, then %d streams 256 bytes each; %d are held", long, short, v.HeldBytes())
	}
	if !v.ReserveRoom(-long, long) || v.HeldBytes() != int64(256*short) {
		t.Errorf("%d bytes are held after %d were given back", v.HeldBytes(), long)
	}
}
