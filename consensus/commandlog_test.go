package consensus

import (
	"bytes"
	"reflect"
	"testing"
)

// The cached command of a leader equals what every other node decodes.
func TestCachedCommandEqualsTheDecodedOne(t *testing.T) {
	var f commandCache
	c := command{Kind: kindPutPlan, ID: "k", BasedOn: 3, Term: 2, Body: []byte("plan"), Actor: "g1", Reason: "demand", At: noon}
	data := mustEncode(t, c)
	c, err := decodeCommand(data)
	if err != nil {
		t.Fatal(err)
	}
	data, c.PreChecked = markChecked(data), true
	f.addCommand(data, c)
	got, ok := f.popCommand(bytes.Clone(data))
	want, err := decodeCommand(data)
	if err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("cached %+v %v, decoded %+v %v", got, ok, want, err)
	}
	if _, ok := f.popCommand(data); ok {
		t.Error("it stays in the cache")
	}
	if _, ok := f.popCommand(nil); ok {
		t.Error("an empty entry was cached")
	}
}

// A proposal that is applied was decoded once.
func TestLeaderDecodesACommandOnce(t *testing.T) {
	s := newSoloNode(t)
	n, err := s.startNode(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stopNode(n)
	if _, err := n.PutSpec(t.Context(), 0, []byte("one"), "alice"); err != nil {
		t.Fatal(err)
	}
	for i := range n.fsm.commandCache.recent {
		if n.fsm.commandCache.recent[i].data != nil {
			t.Error("the cached command differs from the applied one")
		}
	}
	if n.fsm.commandCache.nextSlot == 0 {
		t.Error("nothing was foreseen")
	}
}
