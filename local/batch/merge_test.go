package batch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/local/batch"
	"pgregory.net/rapid"
)

func embeddingsPart(t testing.TB, body string) *batch.RequestPart {
	t.Helper()
	p, ok := batch.ReadEmbeddings([]byte(body))
	if !ok {
		t.Fatalf("%s makes no part", body)
	}
	return p
}

func TestReadEmbeddings(t *testing.T) {
	for _, c := range []struct {
		body            string
		items           int
		weight, longest int64
	}{
		{`{"model":"m","input":"hello"}`, 1, 5, 5},
		{`{"input" : [ "a" , "bcd" ] ,"model":"m"}`, 2, 4, 3},
		{`{"model":"m","input":[1,22,333]}`, 1, 12, 12},
		{`{"model":"m","input":[[1,22],[3]]}`, 2, 12, 8},
		{`{"model":"m","inp\u0075t":"x"}`, 1, 1, 1},
	} {
		p := embeddingsPart(t, c.body)
		if p.Items != c.items || p.Weight != c.weight || p.Longest != c.longest {
			t.Errorf("%s: %d items, weight %d, longest %d", c.body, p.Items, p.Weight, p.Longest)
		}
	}
	for _, alone := range []string{
		``, `[]`, `{"model":"m"}`, `{"input":""}`, `{"input":[]}`, `{"input":[""]}`, `{"input":["a",[1]]}`, `{"input":["a",1]}`, `{"input":[1,"a"]}`,
		`{"input":[[]]}`, `{"input":{"text":"a"}}`, `{"input":null}`, `{"input":7}`, `{"input":[[1,"a"]]}`, `{"input":["a"]}{"input":["b"]}`,
		`{"input":"a","input":"b"}`, `{"input":"a","inp\u0075t":"b"}`, `{"input":"a","messages":[]}`, `{"input":"a","stream":true}`, `{"input":["a",]}`,
		`{"input":["a" "b"]}`, `{"input":["a","b"`, `{"input":[1,[2]]}`,
	} {
		if p, ok := batch.ReadEmbeddings([]byte(alone)); ok {
			t.Errorf("%s makes a part of %d items", alone, p.Items)
		}
	}
}

func TestRequestsThatDifferInAnyParameterNeverShareACall(t *testing.T) {
	base := `{"model":"m","input":"a","encoding_format":"float","dimensions":256,"user":"u"}`
	same := embeddingsPart(t, strings.Replace(base, `"a"`, `["x","y"]`, 1))
	if !embeddingsPart(t, base).CanMergeWith(same) {
		t.Fatal("requests that differ in their inputs only do not fit")
	}
	for _, other := range []string{
		strings.Replace(base, "float", "base64", 1), strings.Replace(base, "256", "512", 1), strings.Replace(base, `"u"`, `"v"`, 1),
		strings.Replace(base, `"m"`, `"n"`, 1), strings.Replace(base, `,"user":"u"`, ``, 1), strings.Replace(base, `"a"`, `[1,2]`, 1),
		strings.Replace(base, `}`, `,"truncate_prompt_tokens":8}`, 1),
	} {
		if p := embeddingsPart(t, other); p.CanMergeWith(same) || same.CanMergeWith(p) {
			t.Errorf("%s fits %s", other, base)
		}
	}
}

func TestMergedBodyIsOneRequest(t *testing.T) {
	parts := []*batch.RequestPart{
		embeddingsPart(t, `{"model":"m","input":"a\"]","user":"u"}`),
		embeddingsPart(t, `{"model":"m","input":[ "b" , "c" ],"user":"u"}`),
		embeddingsPart(t, `{"model":"m","input":["d"],"user":"u"}`),
	}
	if got, want := string(batch.MergeParts(parts)), `{"model":"m","input":["a\"]","b" , "c","d"],"user":"u"}`; got != want {
		t.Errorf("merged\n%s, want\n%s", got, want)
	}
	ids := []*batch.RequestPart{embeddingsPart(t, `{"model":"m","input":[1,2]}`), embeddingsPart(t, `{"model":"m","input":[[3],[4,5]]}`)}
	if got, want := string(batch.MergeParts(ids)), `{"model":"m","input":[[1,2],[3],[4,5]]}`; got != want {
		t.Errorf("merged %s, want %s", got, want)
	}
}

// TestEveryPartGetsItsOwnResults: for any merged requests, each client's answer is what it would have got alone, in its own
// order, and usage adds up.
func TestEveryPartGetsItsOwnResults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.Bool().Draw(rt, "ids")
		var parts []*batch.RequestPart
		var own [][]string
		for range rapid.IntRange(2, 12).Draw(rt, "parts") {
			raw := drawInput(rt, ids)
			body, _ := json.Marshal(map[string]any{"model": "m", "input": json.RawMessage(raw), "user": "u"})
			parts = append(parts, embeddingsPart(t, string(body)))
			own = append(own, decodeInputs(t, raw))
			if !parts[0].CanMergeWith(parts[len(parts)-1]) {
				rt.Fatalf("%s does not fit %s", body, parts[0].Body())
			}
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 1))
		upstream := answerEmbeddings(t, batch.MergeParts(parts), rng)
		answers, ok := batch.SplitAnswer(parts, upstream)
		if !ok || len(answers) != len(parts) {
			rt.Fatalf("%s cannot be split", upstream)
		}
		total := 0
		for i, a := range answers {
			r := readAnswer(t, a)
			if got := r.inputTexts(t); !slices.Equal(got, own[i]) {
				rt.Fatalf("owner %d got %q, want %q", i, got, own[i])
			}
			if r.Usage.Prompt != r.Usage.Total || r.Usage.Details != nil {
				rt.Fatalf("usage is %+v", r.Usage)
			}
			total += r.Usage.Prompt
		}
		var whole embeddingsResult
		if err := json.Unmarshal(upstream, &whole); err != nil || total != whole.Usage.Prompt {
			rt.Fatalf("the owners' tokens add up to %d, the engine counted %d", total, whole.Usage.Prompt)
		}
	})
}

func drawInput(rt *rapid.T, ids bool) json.RawMessage {
	item := func() any {
		if ids {
			return rapid.SliceOfN(rapid.IntRange(0, 99999), 1, 5).Draw(rt, "tokens")
		}
		return rapid.StringN(1, 20, -1).Draw(rt, "text")
	}
	var v any
	if n := rapid.IntRange(0, 4).Draw(rt, "inputs"); n == 0 {
		v = item()
	} else {
		list := make([]any, n)
		for i := range list {
			list[i] = item()
		}
		v = list
	}
	return json.RawMessage(compactJSON(v))
}

func TestInconsistentAnswerIsNotSplit(t *testing.T) {
	parts := []*batch.RequestPart{embeddingsPart(t, `{"model":"m","input":"a"}`), embeddingsPart(t, `{"model":"m","input":"b"}`)}
	for _, body := range []string{
		``, `null`, `{}`, `{"data":[]}`, `{"data":[{"index":0}]}`, `{"data":[{"index":0},{"index":0}]}`, `{"data":[{"index":0},{"index":2}]}`,
		`{"data":[{"index":0},{"index":1},{"index":2}]}`, `{"data":[{"index":0},{"index":-1}]}`, `{"data":[{"index":0},{"index":1}]`, `{"data":[1,2]}`,
		`{"data":[{"index":0},{"index":1}],"data":[{"index":0},{"index":1}]}`, `{"data":[{"index":0},{"index":1}],"usage":7}`,
		`{"data":[{"index":0},{"index":1,"index":1}]}`, `{"error":{"message":"x"},"data":[{"index":0},{"index":1}]}`, `{"data":[{"index":0}{"index":1}]}`,
	} {
		if answers, ok := batch.SplitAnswer(parts, []byte(body)); ok {
			t.Errorf("%s was split into %q", body, answers)
		}
	}
	for _, body := range []string{`{"data":[{"e":0},{"e":1}]}`, `{"data":[{"index":1},{"index":0}],"usage":null}`} {
		if _, ok := batch.SplitAnswer(parts, []byte(body)); !ok {
			t.Errorf("%s was not split", body)
		}
	}
}

func inferPart(t testing.TB, body string) *batch.RequestPart {
	t.Helper()
	p, ok := batch.ReadInfer([]byte(body))
	if !ok {
		t.Fatalf("%s makes no part", body)
	}
	return p
}

func TestInferIsMergedByRows(t *testing.T) {
	for _, nested := range []bool{false, true} {
		a := inferPart(t, `{"id":"a","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}],"outputs":[{"name":"y"}]}`)
		b := inferPart(t, `{"id":"b","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[5.5, -6e1]}],"outputs":[{"name":"y"}]}`)
		if !a.CanMergeWith(b) || a.Items != 2 || b.Items != 1 {
			t.Fatalf("fits %v, rows %d and %d", a.CanMergeWith(b), a.Items, b.Items)
		}
		parts := []*batch.RequestPart{a, b}
		merged := batch.MergeParts(parts)
		if want := `{"id":"a","inputs":[{"name":"x","shape":[3,2],"datatype":"FP32","data":[1,2,3,4,5.5, -6e1]}],"outputs":[{"name":"y"}]}`; string(merged) != want {
			t.Fatalf("merged\n%s, want\n%s", merged, want)
		}
		answers, ok := batch.SplitAnswer(parts, answerTensors(t, merged, nested))
		if !ok {
			t.Fatal("not split")
		}
		for i, want := range []string{`{"id":"a","shape":[2,4],"data":[1,2,1,2,3,4,3,4]}`, `{"id":"b","shape":[1,4],"data":[5.5,-60,5.5,-60]}`} {
			if got := decodeOutput(t, answers[i]); got != want {
				t.Errorf("owner %d got %s, want %s", i, got, want)
			}
		}
	}
}

func decodeOutput(t testing.TB, a batch.PartAnswer) string {
	t.Helper()
	var r struct {
		ID      string
		Outputs []struct {
			Shape []int
			Data  []any
		}
	}
	if err := json.Unmarshal([]byte(joinAnswer(a)), &r); err != nil {
		t.Fatalf("%q: %v", joinAnswer(a), err)
	}
	var flat []any
	for _, d := range r.Outputs[0].Data {
		if row, ok := d.([]any); ok {
			flat = append(flat, row...)
		} else {
			flat = append(flat, d)
		}
	}
	return fmt.Sprintf(`{"id":%q,"shape":%s,"data":%s}`, r.ID, compactJSON(r.Outputs[0].Shape), compactJSON(flat))
}

func joinAnswer(a batch.PartAnswer) string {
	var b strings.Builder
	for _, piece := range a {
		b.Write(piece)
	}
	return b.String()
}

func TestUncountableInferIsNotBatched(t *testing.T) {
	tensor := func(shape, data string) string {
		return `{"inputs":[{"name":"x","shape":` + shape + `,"datatype":"FP32","data":` + data + `}]}`
	}
	for _, body := range []string{
		``, `{}`, `{"inputs":[]}`, `{"inputs":[{"name":"x","datatype":"FP32","data":[1]}]}`, `{"inputs":[{"name":"x","shape":[1]}]}`,
		tensor(`[2]`, `[1]`), tensor(`[1]`, `[1,2]`), tensor(`[1,3]`, `[1,2,3,4]`), tensor(`[0]`, `[]`), tensor(`[]`, `[1]`), tensor(`[-1]`, `[1]`),
		tensor(`[1.0]`, `[1]`), tensor(`[2]`, `[1,,2]`), tensor(`[2]`, `[1 2]`), tensor(`[2]`, `[1,null]`), tensor(`[2]`, `[1,{}]`), tensor(`[2]`, `[[1,2],[]]`),
		tensor(`[1]`, `"a"`), tensor(`[999999999,999999999]`, `[1]`), `{"inputs":[{"shape":[1],"data":[1]},{"shape":[2],"data":[1,2]}]}`,
		`{"inputs":[{"shape":[1],"data":[1],"parameters":{"binary_data_size":4}}]}`, `{"parameters":{"sequence_id":3},"inputs":[{"shape":[1],"data":[1]}]}`,
		`{"inputs":[{"shape":[1],"data":[1]}],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]}`,
		`{"id":7,"inputs":[{"shape":[1],"data":[1]}]}`, `{"inputs":[{"shape":[1],"data":[1]}]}x`,
	} {
		if _, ok := batch.ReadInfer([]byte(body)); ok {
			t.Errorf("%s makes a part", body)
		}
	}
	base := inferPart(t, tensor(`[1,2]`, `[1,2]`))
	for _, body := range []string{
		tensor(`[1,1]`, `[1]`), tensor(`[1,2]`, `[[1,2]]`), strings.Replace(tensor(`[1,2]`, `[1,2]`), "FP32", "FP16", 1),
		`{"id":"a",` + tensor(`[1,2]`, `[1,2]`)[1:],
	} {
		if inferPart(t, body).CanMergeWith(base) {
			t.Errorf("%s fits", body)
		}
	}
	if !inferPart(t, `{"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["a,]","b"]}]}`).CanMergeWith(inferPart(t, `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["c"]}]}`)) {
		t.Error("texts do not fit")
	}
}

func TestInconsistentInferAnswerIsNotSplit(t *testing.T) {
	one := `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}`
	parts := []*batch.RequestPart{inferPart(t, one), inferPart(t, one)}
	for _, body := range []string{
		`{}`, `{"outputs":[]}`, `{"outputs":[{"shape":[1],"data":[1]}]}`, `{"outputs":[{"shape":[2],"data":[1]}]}`, `{"outputs":[{"shape":[2],"data":[1,2,3]}]}`,
		`{"outputs":[{"shape":[2,2],"data":[[1,2,3,4]]}]}`, `{"outputs":[{"shape":[2],"parameters":{"binary_data_size":8}}]}`, `{"error":"x","outputs":[{"shape":[2],"data":[1,2]}]}`,
	} {
		if _, ok := batch.SplitAnswer(parts, []byte(body)); ok {
			t.Errorf("%s was split", body)
		}
	}
}

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

// Embeddings that differ in their inputs only become one call.
func ExampleMergeParts() {
	a, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"one"}`))
	b, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"two"}`))
	c, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"three","dimensions":64}`))
	fmt.Println(a.CanMergeWith(b), a.CanMergeWith(c))
	fmt.Println(string(batch.MergeParts([]*batch.RequestPart{a, b})))
	// Output:
	// true false
	// {"model":"e","input":["one","two"]}
}
