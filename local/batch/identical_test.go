package batch

import (
	"testing"
	"time"
)

// TestEqualHashesAreNotEqualRequests: the hash of a body is not keyed, so any client can make two bodies with one hash. Only equal
// bodies share an answer.
func TestEqualHashesAreNotEqualRequests(t *testing.T) {
	a := &RequestPart{kind: kindEmbeddings, bodyHash: 7, body: []byte(`{"input":"a"}`), Items: 1}
	b := &RequestPart{kind: kindEmbeddings, bodyHash: 7, body: []byte(`{"input":"b"}`), Items: 1}
	if a.IsIdenticalTo(b) || !a.IsIdenticalTo(&RequestPart{kind: kindEmbeddings, bodyHash: 7, body: []byte(`{"input":"a"}`)}) {
		t.Error("bodies are compared by their hashes alone, or not at all")
	}
	l := NewBatcher[int](Config{})
	l.AddItem(&Item[int]{Part: a, Tenant: "t"}, time.Unix(0, 0))
	if l.FindIdentical(b, "t", 0) != nil {
		t.Error("another request with the same hash is given this one's answer")
	}
}

// TestAbandonedCallIsNotFoundAsIdentical: its answer will not come, so an identical request makes a call of its own.
func TestAbandonedCallIsNotFoundAsIdentical(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewBatcher[int](Config{})
	p := &RequestPart{kind: kindEmbeddings, bodyHash: 7, body: []byte(`{"input":"a"}`), Items: 1}
	l.AddItem(&Item[int]{Part: p, Tenant: "t", Value: 1}, now)
	c := l.NextCall(now)
	if it := l.FindIdentical(p, "t", 0); it == nil || it.Value != 1 {
		t.Fatal("a request in a call has no identical item")
	}
	l.AbandonCall(c)
	if l.FindIdentical(p, "t", 0) != nil {
		t.Error("a request joins an abandoned call")
	}
	l.AddItem(&Item[int]{Part: p, Tenant: "t", Value: 2}, now)
	l.FinishCall(c, false)
	if it := l.FindIdentical(p, "t", 0); it == nil || it.Value != 2 {
		t.Error("the end of the abandoned call removed the next call's item")
	}
	if l.IsEmpty() {
		t.Error("the second request is lost")
	}
}
