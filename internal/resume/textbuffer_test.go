package resume

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

// boundedStorage is a bounded TextStorage that packs by reversing.
type boundedStorage struct {
	room   *int
	broken bool
}

func (s *boundedStorage) ReserveRoom(n, _ int) bool {
	if n > *s.room {
		return false
	}
	*s.room -= n
	return true
}

func (s *boundedStorage) PackBlock(piece []byte) []byte { return reverseBytes(piece) }

func (s *boundedStorage) UnpackBlock(to, packed []byte) ([]byte, error) {
	if s.broken {
		return to, errors.New("cannot be read")
	}
	return append(to, reverseBytes(packed)...), nil
}

func reverseBytes(b []byte) []byte {
	out := make([]byte, 0, len(b)/2)
	for i := range b {
		out = append(out, b[len(b)-1-i])
	}
	return out[:len(out):len(out)]
}

// A text equals what was added, for any split, reserves its length plus one block at most, and releases all of
// it.
func TestTextBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := 1 << 30
		var whole []byte
		p := textBuffer{}
		if rapid.Bool().Draw(t, "stored") {
			p.store = &boundedStorage{room: &room}
		}
		for _, piece := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 3*textBlockBytes)).Draw(t, "pieces") {
			whole = append(whole, piece...)
			if !p.addText(piece) {
				t.Fatal("no room")
			}
		}
		got, err := p.appendTo(nil)
		if err != nil || !bytes.Equal(got, whole) || p.size != len(whole) {
			t.Fatalf("%d bytes became %d (%v), counted as %d", len(whole), len(got), err, p.size)
		}
		if p.store == nil {
			return
		}
		if taken := 1<<30 - room; taken != p.reserved || taken < len(whole) || taken > len(whole)+textBlockBytes {
			t.Fatalf("%d bytes take %d of the room, %d by its own account", len(whole), taken, p.reserved)
		}
		if p.releaseText(); room != 1<<30 {
			t.Fatalf("%d bytes were not given back", 1<<30-room)
		}
	})
}

// A stream that has dropped its text releases its space, and continues.
func TestDroppedTextsReleaseTheirRoom(t *testing.T) {
	room := 1500
	s := newTestSplicer(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.text.store = &boundedStorage{room: &room}
	long := strings.Replace(deltaEvent, `"x"`, `"`+strings.Repeat("y", 900)+`"`, 1)
	for range 5 {
		if got := s.PassChunk([]byte(long)); string(got) != long {
			t.Fatalf("passed %q", got)
		}
	}
	if s.WhyNotResumable() != NoTextMemory || room != 1500 || s.ReservedBytes() != 0 {
		t.Errorf("lost for %q, of 1500 bytes of room %d are left, %d are held", s.WhyNotResumable(), room, s.ReservedBytes())
	}
}

// A stream whose text cannot be unpacked is not resumed.
func TestUnreadableTextIsNotResumed(t *testing.T) {
	room := 1 << 20
	s := newTestSplicer(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.text.store = &boundedStorage{room: &room, broken: true}
	s.PassChunk([]byte(strings.Replace(deltaEvent, `"x"`, `"`+strings.Repeat("y", 3*textBlockBytes)+`"`, 1)))
	if body, end := s.CutStream(0, 1); body != nil || end != nil || s.WhyNotResumable() != UnusableText {
		t.Errorf("goes on with %d bytes, %q", len(body), s.WhyNotResumable())
	}
}
