package batch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/batch"
)

// answerEmbeddings answers an embeddings body as an engine would. Each input's vector is its own text, in hexadecimal digits as
// numbers, and the results come in any order.
func answerEmbeddings(t testing.TB, body []byte, rng *rand.Rand) []byte {
	t.Helper()
	var req map[string]json.RawMessage // by exact key: Go's structs would accept "inPut" for "input", engines do not
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("the engine cannot read %q: %v", body, err)
	}
	inputs := decodeInputs(t, req["input"])
	data := make([]string, len(inputs))
	tokens := 0
	for i, in := range inputs {
		numbers := make([]string, 0, len(in))
		for _, c := range []byte(in) {
			numbers = append(numbers, fmt.Sprint(int(c)))
		}
		tokens += len(in)
		data[i] = fmt.Sprintf(`{"object":"embedding", "index" : %d,"embedding":[%s]}`, i, strings.Join(numbers, ","))
	}
	if rng != nil {
		rng.Shuffle(len(data), func(i, j int) { data[i], data[j] = data[j], data[i] })
	}
	return fmt.Appendf(nil, `{"id":"e-1","object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":%d,"total_tokens": %d,"prompt_tokens_details":{"cached_tokens":1}}}`,
		strings.Join(data, ", "), tokens, tokens)
}

// decodeInputs returns the inputs as the engine reads them, as compact JSON.
func decodeInputs(t testing.TB, raw json.RawMessage) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	list, ok := v.([]any)
	if !ok {
		return []string{compactJSON(v)}
	}
	if _, flat := list[0].(float64); flat {
		return []string{compactJSON(v)}
	}
	out := make([]string, len(list))
	for i := range list {
		out[i] = compactJSON(list[i])
	}
	return out
}

func compactJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// embeddingsResult is an embeddings answer as its client reads it.
type embeddingsResult struct {
	Data []struct {
		Index     int
		Embedding []int
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Total   int `json:"total_tokens"`
		Details any `json:"prompt_tokens_details"`
	}
}

func readAnswer(t testing.TB, a batch.PartAnswer) embeddingsResult {
	t.Helper()
	var text []byte
	for _, piece := range a {
		text = append(text, piece...)
	}
	if len(text) != a.Len() {
		t.Fatalf("the answer has Len %d and %d bytes", a.Len(), len(text))
	}
	var r embeddingsResult
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("the answer %q cannot be read: %v", text, err)
	}
	return r
}

// inputTexts returns the inputs that an answer's vectors stand for, by index.
func (r *embeddingsResult) inputTexts(t testing.TB) []string {
	t.Helper()
	out := make([]string, len(r.Data))
	for i, d := range r.Data {
		if d.Index != i {
			t.Fatalf("result %d has index %d", i, d.Index)
		}
		b := make([]byte, len(d.Embedding))
		for k, c := range d.Embedding {
			b[k] = byte(c)
		}
		out[i] = string(b)
	}
	return out
}

// answerTensors answers a KServe body: the one output holds each row twice.
func answerTensors(t testing.TB, body []byte, nested bool) []byte {
	t.Helper()
	var req struct {
		ID     string
		Inputs []struct {
			Name  string
			Shape []int
			Data  []json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("the engine cannot read %q: %v", body, err)
	}
	in := req.Inputs[0]
	var flat []string
	for _, d := range in.Data {
		flat = append(flat, strings.FieldsFunc(string(d), func(r rune) bool { return strings.ContainsRune("[], ", r) })...)
	}
	per := len(flat) / in.Shape[0]
	var data []string
	for r := range in.Shape[0] {
		row := strings.Join(flat[r*per:(r+1)*per], ",")
		row += "," + row
		if nested {
			row = "[" + row + "]"
		}
		data = append(data, row)
	}
	return fmt.Appendf(nil, `{"model_name":"m","id":%q,"outputs":[{"name":"y","datatype":"FP32","shape":[%d,%d],"data":[%s]}]}`,
		req.ID, in.Shape[0], 2*per, strings.Join(data, ","))
}

// BenchmarkMergedRequest is the cost of one request of a full call in this package, from its body to its answer: reading,
// gathering, merging and splitting 64 requests of about 200 bytes, with vectors of 768 numbers.
func BenchmarkMergedRequest(b *testing.B) {
	const n = 64
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `{"model":"bge-large","input":"%03d %s","encoding_format":"float"}`, i, strings.Repeat("word ", 32))
	}
	vector := "[" + strings.TrimSuffix(strings.Repeat("-0.0123456,", 768), ",") + "]"
	data := make([]string, n)
	for i := range data {
		data[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)
	}
	upstream := []byte(`{"object":"list","data":[` + strings.Join(data, ",") + `],"model":"m","usage":{"prompt_tokens":6400,"total_tokens":6400}}`)
	now := time.Unix(0, 0)
	b.ReportAllocs()
	for b.Loop() {
		l := batch.NewBatcher[int](batch.Config{})
		for _, body := range bodies {
			p, _ := batch.ReadEmbeddings(body)
			l.AddItem(&batch.Item[int]{Part: p}, now)
		}
		c := l.NextCall(now)
		parts := c.Parts()
		batch.MergeParts(parts)
		if _, ok := batch.SplitAnswer(parts, upstream); !ok || c.Size != n {
			b.Fatal("not split")
		}
		l.FinishCall(c, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
}
