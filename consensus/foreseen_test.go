package consensus

import (
	"bytes"
	"reflect"
	"testing"
)

// What a leader remembers of a command is what everybody else reads.
func TestForeseenIsWhatIsRead(t *testing.T) {
	var f foreseen
	c := command{Kind: kindPutPlan, ID: "k", BasedOn: 3, Term: 2, Body: []byte("plan"), Actor: "g1", Reason: "demand", At: noon}
	data := must(t, c)
	c, err := decodeCommand(data)
	if err != nil {
		t.Fatal(err)
	}
	data, c.Judged = markJudged(data), true
	f.note(data, c)
	got, ok := f.take(bytes.Clone(data))
	want, err := decodeCommand(data)
	if err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("remembered %+v %v, read %+v %v", got, ok, want, err)
	}
	if _, ok := f.take(data); ok {
		t.Error("it is remembered for ever")
	}
	if _, ok := f.take(nil); ok {
		t.Error("an empty entry was foreseen")
	}
}

// A proposal that is applied was read once.
func TestALeaderReadsACommandOnce(t *testing.T) {
	s := newSolo(t)
	n, err := s.start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(n)
	if _, err := n.PutSpec(t.Context(), 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	for i := range n.fsm.foreseen.last {
		if n.fsm.foreseen.last[i].data != nil {
			t.Error("what was foreseen was not what was applied")
		}
	}
	if n.fsm.foreseen.next == 0 {
		t.Error("nothing was foreseen")
	}
}
