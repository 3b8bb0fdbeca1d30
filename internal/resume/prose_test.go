package resume

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

// store keeps texts in a room, packed by turning them round.
type store struct {
	room   *int
	broken bool
}

func (s *store) Room(n, _ int) bool {
	if n > *s.room {
		return false
	}
	*s.room -= n
	return true
}

func (s *store) Pack(piece []byte) []byte { return turned(piece) }

func (s *store) Unpack(to, packed []byte) ([]byte, error) {
	if s.broken {
		return to, errors.New("cannot be read")
	}
	return append(to, turned(packed)...), nil
}

func turned(b []byte) []byte {
	out := make([]byte, 0, len(b)/2)
	for i := range b {
		out = append(out, b[len(b)-1-i])
	}
	return out[:len(out):len(out)]
}

// A text is what came, in whatever pieces it did, takes as much room as it is long and a block at most, and gives all of it
// back.
func TestProse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := 1 << 30
		var whole []byte
		p := prose{}
		if rapid.Bool().Draw(t, "stored") {
			p.store = &store{room: &room}
		}
		for _, piece := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 3*blockBytes)).Draw(t, "pieces") {
			whole = append(whole, piece...)
			if !p.add(piece) {
				t.Fatal("no room")
			}
		}
		got, err := p.append(nil)
		if err != nil || !bytes.Equal(got, whole) || p.size != len(whole) {
			t.Fatalf("%d bytes became %d (%v), counted as %d", len(whole), len(got), err, p.size)
		}
		if p.store == nil {
			return
		}
		if taken := 1<<30 - room; taken != p.took || taken < len(whole) || taken > len(whole)+blockBytes {
			t.Fatalf("%d bytes take %d of the room, %d by its own account", len(whole), taken, p.took)
		}
		if p.drop(); room != 1<<30 {
			t.Fatalf("%d bytes were not given back", 1<<30-room)
		}
	})
}

// A stream that has lost its text gives back what it took, and goes on.
func TestLostTextsGiveBackTheirRoom(t *testing.T) {
	room := 1500
	s := newSeam(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.text.store = &store{room: &room}
	long := strings.Replace(delta, `"x"`, `"`+strings.Repeat("y", 900)+`"`, 1)
	for range 5 {
		if got := s.Pass([]byte(long)); string(got) != long {
			t.Fatalf("passed %q", got)
		}
	}
	if s.Why() != Memory || room != 1500 || s.Held() != 0 {
		t.Errorf("lost for %q, of 1500 bytes of room %d are left, %d are held", s.Why(), room, s.Held())
	}
}

// A stream whose text cannot be read again is not resumed.
func TestAnUnreadableText(t *testing.T) {
	room := 1 << 20
	s := newSeam(t, openai.PathChat, `{"messages":[{"role":"user","content":"x"}],"stream":true}`, false)
	s.text.store = &store{room: &room, broken: true}
	s.Pass([]byte(strings.Replace(delta, `"x"`, `"`+strings.Repeat("y", 3*blockBytes)+`"`, 1)))
	if body, end := s.Cut(0, 1); body != nil || end != nil || s.Why() != Text {
		t.Errorf("goes on with %d bytes, %q", len(body), s.Why())
	}
}
