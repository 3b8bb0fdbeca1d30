package batch_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/local/batch"
)

// FuzzMergeParts merges a request with a plain one. What is read as a part must come out as one body with both requests'
// inputs, and be split so that each gets its own results.
func FuzzMergeParts(f *testing.F) {
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
		own := decodeInputs(t, req["input"])
		if len(own) != p.Items {
			t.Fatalf("%q has %d inputs and is read as %d", body, len(own), p.Items)
		}
		parts := []*batch.RequestPart{p, p, p}
		if !p.CanMergeWith(p) {
			t.Fatal("a request does not fit itself")
		}
		upstream := answerEmbeddings(t, batch.MergeParts(parts), nil)
		answers, ok := batch.SplitAnswer(parts, upstream)
		if !ok {
			t.Fatalf("%q cannot be split", upstream)
		}
		for _, a := range answers {
			r := readAnswer(t, a)
			if got := r.inputTexts(t); !slices.Equal(got, own) {
				t.Fatalf("got %q, want %q", got, own)
			}
		}
	})
}

// FuzzSplitAnswer splits arbitrary answers of an engine: it does not panic, and a valid answer gives valid answers.
func FuzzSplitAnswer(f *testing.F) {
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
		for _, parts := range [][]*batch.RequestPart{{two, one}, {rows2, rows1}} {
			answers, ok := batch.SplitAnswer(parts, body)
			if !ok {
				continue
			}
			for _, a := range answers {
				if json.Valid(body) && !json.Valid([]byte(joinAnswer(a))) {
					t.Fatalf("%q became %q", body, joinAnswer(a))
				}
			}
		}
	})
}

// FuzzReadInfer compares the counts of a KServe body with those of a full decoder.
func FuzzReadInfer(f *testing.F) {
	f.Add([]byte(`{"id":"a","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}],"outputs":[{"name":"y"}]}`))
	f.Add([]byte(`{"inputs":[{"data":["a","b"],"shape":[2]},{"shape":[2,1],"data":[true,false]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, ok := batch.ReadInfer(body)
		if !ok || !json.Valid(body) {
			return
		}
		merged := batch.MergeParts([]*batch.RequestPart{p, p})
		twice, ok := batch.ReadInfer(merged)
		if !json.Valid(merged) || !ok || twice.Items != 2*p.Items {
			t.Fatalf("%q twice is %q", body, merged)
		}
	})
}
