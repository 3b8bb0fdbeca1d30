package relay

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is packed comes back as it was, also beside what is packed at the same time.
func TestVaultPacks(t *testing.T) {
	v := NewVault(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 1, 4096).Draw(t, "piece")
		got, err := v.Unpack([]byte("before "), v.Pack(piece))
		if err != nil || !bytes.Equal(got, append([]byte("before "), piece...)) {
			t.Fatalf("%q became %q (%v)", piece, got, err)
		}
	})
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog, ", 23)[:1024])
	done := make(chan []byte)
	for range 4 {
		go func() { done <- v.Pack(text) }()
	}
	for range 4 {
		packed := <-done
		if got, err := v.Unpack(nil, packed); err != nil || !bytes.Equal(got, text) || len(packed) > len(text)/2 {
			t.Errorf("%d bytes were packed to %d and became %q (%v)", len(text), len(packed), got, err)
		}
	}
	if _, err := v.Unpack(nil, []byte("\xff\xff rubbish")); err == nil {
		t.Error("rubbish was unpacked")
	}
}

// When room becomes scarce, the longest texts are the first that get none, and the bound holds.
func TestVaultFavoursShortTexts(t *testing.T) {
	v := NewVault(64 << 10)
	long, short := 0, 0
	for v.Room(512, long) {
		long += 512
	}
	for v.Room(256, 0) {
		short++
	}
	if long == 0 || long > 2<<10 || short < 100 || v.Held() != int64(long+256*short) || v.Held() > 64<<10 {
		t.Errorf("one stream took %d bytes, then %d streams 256 bytes each; %d are held", long, short, v.Held())
	}
	if !v.Room(-long, long) || v.Held() != int64(256*short) {
		t.Errorf("%d bytes are held after %d were given back", v.Held(), long)
	}
}
