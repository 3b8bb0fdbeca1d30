package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestMembersAndElements(t *testing.T) {
	body := []byte(` {"a" : [1.5, -2e3] , "b\u0063":{"x":[["y]"],[]]}, "c":[ "p\"]" , [3] ,{} ] } `)
	m, ok := openai.OpenMembers(body)
	if !ok {
		t.Fatal("no object")
	}
	var got []string
	for key, v, ok := m.Next(); ok; key, v, ok = m.Next() {
		got = append(got, string(key)+"="+string(v))
		if end := m.EndOffset(); string(body[end-len(v):end]) != string(v) {
			t.Errorf("the value of %s does not end at %d", key, end)
		}
	}
	if want := `a=[1.5, -2e3] bc={"x":[["y]"],[]]} c=[ "p\"]" , [3] ,{} ]`; strings.Join(got, " ") != want || !m.IsWholeDocument() {
		t.Fatalf("members are %q, whole %v", got, m.IsWholeDocument())
	}
	e, ok := openai.OpenElements([]byte(strings.TrimPrefix(got[2], "c=")))
	if !ok {
		t.Fatal("no array")
	}
	got = nil
	for v, ok := e.Next(); ok; v, ok = e.Next() {
		got = append(got, string(v))
	}
	if strings.Join(got, "|") != `"p\"]"|[3]|{}` || e.IsMalformed() {
		t.Fatalf("elements are %q, broken %v", got, e.IsMalformed())
	}
}

// FuzzMembers compares Members with a full decoder: it accepts every valid object and splits it equally.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,[2],"]"],"b":{"c":[]}}`, `{"a":[1,[1,[1,[1`, `{"a":[}]}`, `{"a":1,}`, "{\"\\u0061\":\"\\\\\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, ok := openai.OpenMembers(body)
		got := map[string]string{}
		for ok {
			var key, v []byte
			if key, v, ok = m.Next(); ok {
				got[string(key)] = string(v)
			}
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(body, &want) != nil || want == nil {
			return
		}
		if !m.IsWholeDocument() {
			t.Fatalf("%q was refused", body)
		}
		for key, v := range want {
			if g, ok := got[key]; strings.ContainsRune(key, '\uFFFD') == false && (!ok || g != string(v)) {
				t.Fatalf("member %q of %q is %q, want %q", key, body, g, v)
			}
		}
	})
}
