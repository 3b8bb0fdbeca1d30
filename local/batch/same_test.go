package batch

import (
	"testing"
	"time"
)

// TestEqualSumsAreNotEqualRequests: the sum of a body is not keyed, so that anybody can make two bodies with one sum. Only equal
// bodies share an answer.
func TestEqualSumsAreNotEqualRequests(t *testing.T) {
	a := &Part{kind: embeddings, sum: 7, body: []byte(`{"input":"a"}`), Items: 1}
	b := &Part{kind: embeddings, sum: 7, body: []byte(`{"input":"b"}`), Items: 1}
	if a.Same(b) || !a.Same(&Part{kind: embeddings, sum: 7, body: []byte(`{"input":"a"}`)}) {
		t.Error("bodies are compared by their sums alone, or not at all")
	}
	l := NewLane[int](Config{})
	l.Add(&Item[int]{Part: a, Tenant: "t"}, time.Unix(0, 0))
	if l.Twin(b, "t", 0) != nil {
		t.Error("another request with the same sum is given this one's answer")
	}
}

// TestAnAbandonedCallHasNoTwins: its answer will never come, so an identical request makes a call of its own.
func TestAnAbandonedCallHasNoTwins(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLane[int](Config{})
	p := &Part{kind: embeddings, sum: 7, body: []byte(`{"input":"a"}`), Items: 1}
	l.Add(&Item[int]{Part: p, Tenant: "t", Value: 1}, now)
	c := l.Next(now)
	if it := l.Twin(p, "t", 0); it == nil || it.Value != 1 {
		t.Fatal("a request in a call has no twin")
	}
	l.Abandon(c)
	if l.Twin(p, "t", 0) != nil {
		t.Error("a request joins a call that was given up")
	}
	l.Add(&Item[int]{Part: p, Tenant: "t", Value: 2}, now)
	l.Done(c, false)
	if it := l.Twin(p, "t", 0); it == nil || it.Value != 2 {
		t.Error("the end of the call that was given up took the next one's twin away")
	}
	if l.Empty() {
		t.Error("the second request is lost")
	}
}
