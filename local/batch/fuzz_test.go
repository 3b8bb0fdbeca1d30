package batch_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/local/batch"
)

// FuzzMerge merges a request with a plain one: what is read as a part must come out as one body whose inputs are both
// requests' inputs, and be split so that each gets its own.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","input":"hello"}`, `{"input":["a","b\"]"],"model":"m"}`, `{"model":"m","input":[[1,2],[3]]}`, `{"model":"m","input":[1,2,3],"x":{"y":["]"]}}`,
		`{"input":["a",],"model":"m"}`, `{"input":"a","input":"b"}`, `{"input":"a","inPut":"b"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, ok := batch.ReadEmbeddings(body)
		if !ok || !json.Valid(body) {
			return
		}
		var req map[string]json.RawMessage
		if json.Unmarshal(body, &req) != nil || len(req["input"]) == 0 {
			return
		}
		own := inputsOf(t, req["input"])
		if len(own) != p.Items {
			t.Fatalf("%q has %d inputs and is read as %d", body, len(own), p.Items)
		}
		parts := []*batch.Part{p, p, p}
		if !p.Fits(p) {
			t.Fatal("a request does not fit itself")
		}
		upstream := embed(t, batch.Merge(parts), nil)
		answers, ok := batch.Split(parts, upstream)
		if !ok {
			t.Fatalf("%q cannot be split", upstream)
		}
		for _, a := range answers {
			r := read(t, a)
			if got := r.texts(t); !slices.Equal(got, own) {
				t.Fatalf("got %q, want %q", got, own)
			}
		}
	})
}

// FuzzSplit splits whatever an engine may answer: it never panics, and a valid answer gives valid answers.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{
		`{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":"AAA="},{"index":2}],"usage":{"prompt_tokens":7,"total_tokens":7,"d":{}}}`,
		`{"usage":null,"data":[{"e":1},{"e":2},{"e":3}]}`, `{"outputs":[{"shape":[3,2],"data":[1,2,3,4,5,6]}],"id":"x"}`, `{"outputs":[{"data":[[1],[2],[3]],"shape":[3,1]}]}`,
	} {
		f.Add([]byte(s))
	}
	two, ok := batch.ReadEmbeddings([]byte(`{"input":["a","b"]}`))
	one, ok1 := batch.ReadEmbeddings([]byte(`{"input":"c"}`))
	rows2, ok2 := batch.ReadInfer([]byte(`{"id":"p","inputs":[{"shape":[2],"data":[1,2]}]}`))
	rows1, ok3 := batch.ReadInfer([]byte(`{"id":"q","inputs":[{"shape":[1],"data":[3]}]}`))
	if !ok || !ok1 || !ok2 || !ok3 {
		f.Fatal("the parts cannot be read")
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parts := range [][]*batch.Part{{two, one}, {rows2, rows1}} {
			answers, ok := batch.Split(parts, body)
			if !ok {
				continue
			}
			for _, a := range answers {
				if json.Valid(body) && !json.Valid([]byte(text(a))) {
					t.Fatalf("%q became %q", body, text(a))
				}
			}
		}
	})
}

// FuzzReadInfer holds what is counted of a KServe body to what a whole decoder counts.
func FuzzReadInfer(f *testing.F) {
	f.Add([]byte(`{"id":"a","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}],"outputs":[{"name":"y"}]}`))
	f.Add([]byte(`{"inputs":[{"data":["a","b"],"shape":[2]},{"shape":[2,1],"data":[true,false]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, ok := batch.ReadInfer(body)
		if !ok || !json.Valid(body) {
			return
		}
		merged := batch.Merge([]*batch.Part{p, p})
		twice, ok := batch.ReadInfer(merged)
		if !json.Valid(merged) || !ok || twice.Items != 2*p.Items {
			t.Fatalf("%q twice is %q", body, merged)
		}
	})
}
